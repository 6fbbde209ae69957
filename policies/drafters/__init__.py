"""Token continuations for running requests. One file is one policy."""
