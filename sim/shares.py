"""Whose GPU time a step was: each step's duration, divided among its sequences by their tokens.

A decoding sequence has one token a step, so all of them gain the same; one running total serves any number of them,
and a sequence's share is the difference between its leaving and its joining. Time is kept undivided while the width of
the steps stays the same, so that a fast-forwarded stretch gives exactly what its single steps give.
"""

from __future__ import annotations

from sim.request import Request


class Shares:
    """Running total of one replica, in ps a token of a decoding sequence. Every method mutates."""

    def __init__(self) -> None:
        self._total_ps = 0
        self._width = 1
        self._undivided_ps = 0
        self._joined_at_ps: dict[int, int] = {}

    def ran(self, duration_ps: int, tokens: int) -> None:
        """Steps of `tokens` new tokens each took `duration_ps` in all."""
        if tokens != self._width:
            self._divide()
            self._width = max(tokens, 1)
        self._undivided_ps += duration_ps

    def join(self, request: Request) -> None:
        """A request begins to decode."""
        self._divide()
        self._joined_at_ps[request.number] = self._total_ps

    def leave(self, request: Request) -> None:
        """A request does not decode any more."""
        self._divide()
        request.share_ps += self._total_ps - self._joined_at_ps.pop(request.number)

    def _divide(self) -> None:
        self._total_ps += self._undivided_ps // self._width
        self._undivided_ps = 0
