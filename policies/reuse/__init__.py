"""What a finished subgraph may be served from. One file is one policy."""
