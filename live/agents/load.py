"""The server's load as gates see it: read from its own metrics, which other clients' requests are part of."""

from __future__ import annotations

import asyncio
import re

from live.agents.server import Failed, Server
from policies.branch_events import HostLoad

_GAUGES = ("num_requests_running", "num_requests_waiting")


def gauge(text: str, name: str) -> float | None:
    """Return the sum of a gauge over its labels in Prometheus text, None where there is none.

    >>> gauge('vllm:num_requests_running{engine="0"} 3.0', "num_requests_running")
    3.0
    """
    total: float | None = None
    for line in text.splitlines():
        if name in line and not line.startswith("#"):
            found = re.match(rf"^(?:[A-Za-z_]+:)?{name}(?:\{{.*\}})?\s+([0-9.eE+-]+)\s*$", line)
            if found:
                total = (total or 0.0) + float(found[1])
    return total


class ServerLoad:
    """Canonical demand on the server. Mutated by `watch` and by the counts.

    In the simulator `canonical_load` is the share of the last second spent on canonical work. No server says that to
    its clients: here it is the canonical requests on the server over the sequences that it runs at once (`slots`).

    canonical, fills   requests of ours in progress
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.canonical = self.fills = 0
        self._seen: float | None = None
        self.polls = 0

    def now(self) -> HostLoad:
        """Return the load as of the last poll, at least our own requests. Does not mutate."""
        others = self._seen - self.fills if self._seen is not None else 0.0
        seqs = max(self.canonical, round(others))
        return HostLoad(min(seqs / self.slots, 1.0), seqs)

    async def watch(self, server: Server, period_s: float) -> None:
        """Poll until cancelled; a server without metrics is asked once."""
        while True:
            try:
                text = await server.metrics()
            except Failed:
                if not self.polls:
                    return
            else:
                found = [gauge(text, name) for name in _GAUGES]
                if found[0] is None:
                    return
                self.polls += 1
                self._seen = sum(x for x in found if x is not None)
            await asyncio.sleep(period_s)
