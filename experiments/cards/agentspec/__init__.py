"""The card of AgentSpec: token-level drafting under batching."""
