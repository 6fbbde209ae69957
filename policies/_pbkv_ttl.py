"""How long workflows stay away between two requests, and the time to live that pays best."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque


class GapStatistics:
    """The last gaps of each agent, in ns. Mutated by `observe`.

    cold_ttl_ns   time to live while there are fewer than `samples_min` gaps in all
    """

    __slots__ = ("_all", "_by_agent", "_samples_min", "_window", "cold_ttl_ns")

    def __init__(self, window: int, samples_min: int, cold_ttl_ns: int) -> None:
        self._window = window
        self._samples_min = samples_min
        self.cold_ttl_ns = cold_ttl_ns
        self._all = _Window(window)
        self._by_agent: dict[int, _Window] = {}

    def observe(self, agent: int, gap_ns: int) -> None:
        """A workflow came back `gap_ns` after a request of `agent` had ended."""
        self._all.add(gap_ns)
        window = self._by_agent.get(agent)
        if window is None:
            window = self._by_agent[agent] = _Window(self._window)
        window.add(gap_ns)

    def best_ttl_ns(self, agent: int, benefit_ns: int) -> int:
        """Return the tau that maximises P(gap <= tau) * benefit - tau, 0 when holding never pays.

        P is the agent's empirical distribution, that of all agents while the agent has too few gaps. Only observed
        gaps can be optimal; of equal ones the shortest is taken. Integers throughout. Does not mutate.
        """
        window = self._by_agent.get(agent, self._all)
        if len(window.ordered) < self._samples_min:
            window = self._all
        n = len(window.ordered)
        if n < self._samples_min:
            return self.cold_ttl_ns
        best, best_ns = 0, 0
        for count, gap_ns in enumerate(window.ordered, 1):
            value = count * benefit_ns - gap_ns * n
            if value > best:
                best, best_ns = value, gap_ns
        return best_ns


class _Window:
    __slots__ = ("_arrived", "_size", "ordered")

    def __init__(self, size: int) -> None:
        self._size = size
        self._arrived: deque[int] = deque()
        self.ordered: list[int] = []

    def add(self, value: int) -> None:
        if len(self._arrived) == self._size:
            del self.ordered[bisect_left(self.ordered, self._arrived.popleft())]
        self._arrived.append(value)
        insort(self.ordered, value)
