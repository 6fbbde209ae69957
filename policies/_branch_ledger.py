"""The reservation ledger of early fills: slots and KV tokens, taken together or not at all.

It is a ledger, not allocated blocks: what a fill really holds is the engine's affair (policies' reading D12).
"""

from __future__ import annotations


class Ledger:
    """Slots and KV tokens that fills in flight have reserved. Methods mutate."""

    def __init__(self, fills_max: int, kv_tokens_max: int) -> None:
        self.fills_max, self.kv_tokens_max = fills_max, kv_tokens_max
        self.kv_tokens = 0
        self._held: dict[int, int] = {}

    @property
    def fills(self) -> int:
        """Fills that hold a slot."""
        return len(self._held)

    def reserve(self, fill: int, kv_tokens: int) -> bool:
        """Take a slot and the tokens for `fill`; False, and nothing taken, when either is short."""
        if len(self._held) >= self.fills_max or self.kv_tokens + kv_tokens > self.kv_tokens_max:
            return False
        assert fill not in self._held
        self._held[fill] = kv_tokens
        self.kv_tokens += kv_tokens
        return True

    def release(self, fill: int) -> None:
        """Give back what `fill` holds; nothing if it holds nothing."""
        self.kv_tokens -= self._held.pop(fill, 0)

    def check(self) -> None:
        """Raise AssertionError when the books do not add up. Does not mutate."""
        assert self.kv_tokens == sum(self._held.values())
        assert len(self._held) <= self.fills_max
        assert self.kv_tokens <= self.kv_tokens_max or not self._held
