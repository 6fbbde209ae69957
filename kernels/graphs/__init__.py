"""CUDA graphs over a decode step: capture, replay, and the strategies that choose between graphs."""
