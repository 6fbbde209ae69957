"""Canonical demand as gates see it: the share of the last second that replicas spent on canonical work."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from policies.branch_events import HostLoad
from sim.clock import PS_PER_S

if TYPE_CHECKING:
    from sim.engine import Engine

_WINDOW_PS = PS_PER_S
_GRAIN_PS = _WINDOW_PS // 64


class CanonicalLoad:
    """Samples the replicas' canonical time. `now` mutates the samples."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = engines
        self._samples: deque[tuple[int, int]] = deque([(0, 0)])

    def now(self, now_ps: int) -> HostLoad:
        """Return the load at this instant."""
        busy = sum(e.canonical_busy_ps() for e in self._engines)
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= now_ps - _WINDOW_PS:
            samples.popleft()
        since, then = samples[0]
        if now_ps - samples[-1][0] >= _GRAIN_PS:
            samples.append((now_ps, busy))
        span = max(now_ps - since, _WINDOW_PS if since == 0 else 1)
        share = (busy - then) / (span * len(self._engines))
        return HostLoad(min(max(share, 0.0), 1.0), sum(e.canonical_requests for e in self._engines))
