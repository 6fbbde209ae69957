"""Which host-resident nodes come back to HBM. One file is one policy."""
