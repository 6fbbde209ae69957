"""What it takes to have a node's tokens again: recomputed, or copied from the host tier where that has them."""

from __future__ import annotations

from policies.views import CacheNode, HostInfo

_PS = 10**12


class ReloadCost:
    """Cost of a node's tokens, in ps a token: one number for runs and for the blocks they consist of.

    Recomputing a token is priced within a full prefill batch, with the attention over what stands before it. A host
    tier's copy costs the link's time; queues on the link and on the engine are not foreseen.
    """

    __slots__ = ("_batch_tokens", "_host", "_linear_ps", "_reload_ps")

    def __init__(self, host: HostInfo) -> None:
        profile = host.profile
        self._host = host
        self._batch_tokens = host.max_num_batched_tokens
        self._linear_ps = profile.linear_ps_at(self._batch_tokens) // self._batch_tokens
        self._reload_ps: int | None = None
        if host.host_bytes_per_s:
            self._reload_ps = profile.kv_bytes_per_token * _PS // host.host_bytes_per_s

    def of(self, node: CacheNode) -> int:
        """Return the cost now, at least 1. Does not mutate."""
        tokens, depth = node.tokens, node.depth_tokens
        before = depth - tokens // 2  # of an average token of the node
        again = self._linear_ps + self._host.profile.attention_as_per_pair * before // 1_000_000
        hosted = self._host.hosted_tokens
        if self._reload_ps is not None and hosted is not None and hosted(node) >= depth:
            again = min(again, self._reload_ps)
        return max(again, 1)
