"""Which agents a workflow runs next. One file is one policy."""
