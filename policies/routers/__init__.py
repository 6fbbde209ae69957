"""The replica of a request. One file is one policy."""
