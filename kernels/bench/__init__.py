"""Step latency, build time and memory of each graph strategy: the rows that calibration turns into a profile."""
