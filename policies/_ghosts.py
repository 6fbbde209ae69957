"""Memory of what was evicted, by content, for policies that learn from evicting too early."""

from __future__ import annotations

from collections import OrderedDict


class Ghosts:
    """Identities of evicted nodes with their tokens, oldest first; holds no KV."""

    __slots__ = ("_tokens", "tokens")

    def __init__(self) -> None:
        self._tokens: OrderedDict[int, int] = OrderedDict()
        self.tokens = 0

    def __contains__(self, identity: int) -> bool:
        return identity in self._tokens

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, identity: int, tokens: int) -> None:
        """Remember as newest. Mutates."""
        self.forget(identity)
        self._tokens[identity] = tokens
        self.tokens += tokens

    def forget(self, identity: int) -> None:
        """Drop, if remembered. Mutates."""
        self.tokens -= self._tokens.pop(identity, 0)

    def trim(self, limit_tokens: int) -> None:
        """Drop the oldest until at most `limit_tokens` are remembered. Mutates."""
        while self.tokens > limit_tokens and self._tokens:
            self.tokens -= self._tokens.popitem(last=False)[1]
