"""Triton kernels of a decode step whose shape is read from a plan on the device, so that one CUDA graph serves many."""
