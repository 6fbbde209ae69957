"""Readings of A_w(c): which agents of a workflow will hit a node that some of its agents have read.

Section 5 of PBKV takes those that read it ("literal"), and names a customisation for frameworks that hand the history
on: if agent j inherits what agent i read, A_w(c)[j] is 1 whenever A_w(c)[i] is ("inherit").
"""

from __future__ import annotations

from policies.views import HostInfo
from traces.errors import InputError, nearest

LEARNED, ALL = "learned", "all"


class Inheritance:
    """Which agent passes its history to which, as bit masks, closed under passing on. Mutated by `observe`.

    passes   "all": everyone inherits everything; "learned": i passes to j once two workflows were seen in which j read
             what only i's side of its own workflow had read (one workflow proves nothing: the first workflow of a run
             is alone on shared prompts too); otherwise pairs by name, "planner>coder,coder>tester"
    """

    __slots__ = ("_agents", "_first", "_learns", "heirs")

    def __init__(self, passes: str, host: HostInfo) -> None:
        self._agents = len(host.agents)
        self._learns = passes == LEARNED
        self._first: dict[tuple[int, int], int] = {}
        self.heirs = [1 << a for a in range(self._agents)]
        if passes == ALL:
            self.heirs = [(1 << self._agents) - 1] * self._agents
        elif passes != LEARNED:
            for pair in passes.split(","):
                source, arrow, heir = (part.strip() for part in pair.partition(">"))
                if not arrow:
                    raise InputError(
                        f"passes={passes}: expected 'learned', 'all' or pairs like planner>coder, got {pair!r}"
                    )
                for name in (source, heir):
                    if name not in host.agents:
                        raise InputError(nearest(name, host.agents, what=f"agent in passes={passes}"))
                self._add(host.agents.index(source), host.agents.index(heir))

    def observe(self, workflow: int, readers: int, agent: int) -> bool:
        """Agent `agent` read a node that only `readers` of its workflow had read; True when that changed anything."""
        if not self._learns or not 0 <= agent < self._agents:
            return False
        changed = False
        while readers:
            low = readers & -readers
            readers ^= low
            source = low.bit_length() - 1
            if source >= self._agents or self.heirs[source] >> agent & 1:
                continue
            if self._first.setdefault((source, agent), workflow) != workflow:
                self._add(source, agent)
                changed = True
        return changed

    def close(self, readers: int) -> int:
        """Return the agents that will hit what `readers` read. Does not mutate."""
        out = 0
        rest = readers
        while rest:
            low = rest & -rest
            rest ^= low
            at = low.bit_length() - 1
            out |= self.heirs[at] if at < self._agents else low
        return out

    def _add(self, source: int, heir: int) -> None:
        gained = self.heirs[heir]
        for i, mask in enumerate(self.heirs):
            if mask >> source & 1:
                self.heirs[i] = mask | gained
