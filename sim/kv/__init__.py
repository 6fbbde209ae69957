"""The KV cache of a replica: prefix tree, block accounting, host tier."""
