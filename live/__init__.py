"""Hosts for a real engine: the same policy objects, loaded into vLLM. Its rooms are empty until they are built."""
