"""The host in vLLM V1: policies of the simulator inside a running engine. Imports no vLLM by itself."""
