"""Hosts for a real engine: the same policy objects, loaded into vLLM."""
