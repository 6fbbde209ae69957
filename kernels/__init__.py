"""Triton plan-buffer kernels and graph strategies. The rooms are empty until they are built."""
