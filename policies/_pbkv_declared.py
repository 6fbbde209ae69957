"""A step graph that clients declare: who runs after whom, with forks and AND joins (KVFlow, section 4.2).

`planner>searcher,searcher>reader,reader>searcher|verifier` names edges; `a>b&c` is a fork, after which both will run,
`b&c>d` a join, which waits for both. `a>b|c` is short for a>b,a>c: one of them runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from policies._pbkv_steps import FAR, UNIT
from traces.errors import InputError, nearest


class Marking(NamedTuple):
    """Where a workflow is, as bit masks: agents that ran and led to nobody yet; heirs of forks that have yet to run."""

    heads: int = 0
    pending: int = 0


class DeclaredGraph:
    """Edges from sets of agents to sets of agents. Steps are kept by marking; otherwise nothing changes.

    Raises InputError for an edge that is none, and for agents the host does not know.
    """

    __slots__ = ("_agents", "_edges", "_known")

    def __init__(self, edges: str, agents: Sequence[str]) -> None:
        self._agents = len(agents)
        self._known: dict[Marking, list[int]] = {}
        place = {name: i for i, name in enumerate(agents)}

        def mask(names: str) -> int:
            out = 0
            for name in names.split("&"):
                if name.strip() not in place:
                    raise InputError(nearest(name.strip(), agents, what=f"agent in edges={edges}"))
                out |= 1 << place[name.strip()]
            return out

        self._edges: list[tuple[int, int]] = []
        for edge in edges.split(","):
            sources, arrow, heirs = edge.partition(">")
            if not arrow or not sources.strip() or not heirs.strip():
                raise InputError(
                    f"edges={edges}: expected edges such as a>b, a&b>c, a>b&c or a>b|c, got {edge.strip()!r}"
                )
            self._edges += [(mask(sources), mask(heir)) for heir in heirs.split("|")]

    def ran(self, marking: Marking, agent: int) -> Marking:
        """Return the marking after an agent ran. An agent that no edge allows now starts anew beside what there is."""
        heads, pending = marking
        bit = 1 << agent
        if pending & bit:
            return Marking(heads | bit, pending & ~bit)
        # The edge that takes the most heads: a join goes before an edge of one of its sources.
        taken = [e for e in self._edges if e[1] & bit and e[0] & ~heads == 0]
        if taken:
            sources, heirs = max(taken, key=lambda e: e[0].bit_count())
            heads &= ~sources
            pending |= heirs & ~bit
        return Marking(heads | bit, pending)

    def steps(self, marking: Marking) -> list[int]:
        """Return the steps until each agent runs next, in units of UNIT; FAR for those that cannot.

        A join is one step after the last of its sources, an agent of several edges as near as the nearest.
        """
        known = self._known.get(marking)
        if known is not None:
            return known
        heads, pending = marking
        out = [UNIT if pending >> a & 1 else FAR for a in range(self._agents)]
        for _ in range(self._agents + 1):
            before = list(out)
            for sources, heirs in self._edges:
                waits = max(0 if heads >> s & 1 else before[s] for s in _bits(sources))
                if waits >= FAR:
                    continue
                for heir in _bits(heirs):
                    out[heir] = min(out[heir], waits + UNIT)
            if out == before:
                break
        self._known[marking] = out
        return out


def _bits(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
