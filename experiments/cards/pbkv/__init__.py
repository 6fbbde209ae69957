"""The card of PBKV: predicted-agent KV eviction and prefetch."""
