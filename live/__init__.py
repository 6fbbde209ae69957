"""Hosts for a real engine: the same policy objects, loaded into vLLM. The rooms are empty until they are built."""
