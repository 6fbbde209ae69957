"""Which cache nodes leave HBM. One file is one policy."""
