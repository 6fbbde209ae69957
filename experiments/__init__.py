"""Compose a comparison, run it through the simulator, keep every run, and report it."""
