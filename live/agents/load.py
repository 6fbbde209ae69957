"""The server's load as gates see it: read from its own metrics, which other clients' requests are part of."""

from __future__ import annotations

import asyncio
import math
import re

from live.agents.server import Failed, Server
from policies.branch_events import HostLoad

_GAUGES = ("num_requests_running", "num_requests_waiting")
_FORGET_AFTER = 10  # polls without an answer: who knows what others do now


def gauge(text: str, name: str) -> float | None:
    """Return the sum of a gauge over its labels in Prometheus text, None where there is none that makes sense.

    >>> gauge('vllm:num_requests_running{engine="0"} 3.0', "num_requests_running")
    3.0
    """
    total: float | None = None
    line_of = re.compile(rf"^(?:[A-Za-z_]+:)?{name}(?:\{{.*\}})?\s+(\S+)(?:\s+-?\d+)?\s*$")
    for line in text.splitlines():
        found = line_of.match(line) if name in line else None
        if found:
            try:
                value = float(found[1])
            except ValueError:
                continue
            if 0 <= value < math.inf:
                total = (total or 0.0) + value
    return total


class ServerLoad:
    """Canonical demand on the server. Mutated by `watch`, by `heard` and by the counts.

    In the simulator `canonical_load` is the share of the last second spent on canonical work. No server says that to
    its clients: here it is the canonical requests on the server over the sequences that it runs at once (`slots`).

    canonical, fills   requests of ours in progress
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.canonical = self.fills = 0
        self._others = 0
        self.polls = 0

    def now(self) -> HostLoad:
        """Return the load: our own requests as of now, others' as of the last poll. Does not mutate."""
        seqs = self.canonical + self._others
        return HostLoad(min(seqs / self.slots, 1.0), seqs)

    def heard(self, requests: float) -> None:
        """The server has so many requests, running and waiting, ours among them."""
        self.polls += 1
        self._others = max(round(requests) - self.canonical - self.fills, 0)

    async def watch(self, server: Server, period_s: float) -> None:
        """Poll until cancelled, or until it is plain that the server has no such metrics."""
        silent = 0
        while True:
            try:
                text = await server.metrics()
            except Failed:
                silent += 1
                if silent == _FORGET_AFTER:
                    self._others = 0
            else:
                found = [gauge(text, name) for name in _GAUGES] if text is not None else [None]
                if found[0] is None:
                    return
                silent = 0
                self.heard(sum(x for x in found if x is not None))
            await asyncio.sleep(period_s)
