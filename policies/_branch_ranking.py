"""Ranked candidates of scored options, and counts of outcomes, for the candidate drafters."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from policies.views import BranchView, Candidate, HostInfo
from traces import draws


@dataclass
class Luck:
    """A state that only draws (and, for an oracle, asks)."""

    host: HostInfo


Option = tuple[int, int]  # outcome, arguments


def options(branch: BranchView) -> list[Option]:
    """Return the options on the menu as (outcome, arguments)."""
    if not branch.menu_arguments:
        return [(outcome, 0) for outcome in branch.menu]
    return list(zip(branch.menu, branch.menu_arguments, strict=True))


def ranked(scored: Iterable[tuple[Option, float]], limit: int) -> list[Candidate]:
    """Return the best `limit` distinct options, rank 0 first, scores clipped to [0, 1].

    Ties are broken by a hash of the option, never by its place: menus may list what was taken first.
    """
    best: dict[Option, float] = {}
    for option, score in scored:
        if score >= 0:  # False for NaN as well
            best[option] = max(best.get(option, 0.0), min(score, 1.0))
    order = sorted(best, key=lambda o: (-round(best[o], 9), draws.mix(o[0]) ^ draws.mix(~o[1]), o))
    return [
        Candidate(outcome, rank, best[outcome, arguments], arguments)
        for rank, (outcome, arguments) in enumerate(order[:limit])
    ]


class Counts:
    """How often which (outcome, arguments) followed which context. `add` mutates."""

    def __init__(self) -> None:
        self._of: dict[Hashable, dict[Option, int]] = {}
        self._total: dict[Hashable, int] = {}

    def add(self, context: Hashable, option: Option) -> None:
        """Count one."""
        seen = self._of.setdefault(context, {})
        seen[option] = seen.get(option, 0) + 1
        self._total[context] = self._total.get(context, 0) + 1

    def total(self, context: Hashable) -> int:
        """Return how often the context was seen."""
        return self._total.get(context, 0)

    def outcomes(self, context: Hashable) -> dict[int, int]:
        """Return the count of each outcome, whatever its arguments."""
        out: dict[int, int] = {}
        for (outcome, _), count in self._of.get(context, {}).items():
            out[outcome] = out.get(outcome, 0) + count
        return out

    def options(self, context: Hashable) -> dict[Option, int]:
        """Return the count of each (outcome, arguments)."""
        return self._of.get(context, {})


def from_outcomes(
    branch: BranchView, chance: dict[int, float], known: Sequence[dict[Option, int]], limit: int
) -> list[Candidate]:
    """Rank by the chance of outcomes. Arguments come from the menu, else those seen most often with the outcome.

    known: counts of (outcome, arguments), most specific first. Options of one outcome share its chance by their counts.
    """
    if branch.menu:
        menu = options(branch)
        scored = []
        for outcome, arguments in menu:
            same = [o for o in menu if o[0] == outcome]
            seen = next((k for k in known if any(k.get(o) for o in same)), {})
            weight = (1 + seen.get((outcome, arguments), 0)) / sum(1 + seen.get(o, 0) for o in same)
            scored.append(((outcome, arguments), chance.get(outcome, 0.0) * weight))
        return ranked(scored, limit)
    scored = []
    for outcome, p in chance.items():
        for counts in known:
            of = {o: n for o, n in counts.items() if o[0] == outcome}
            if of:
                option = max(of, key=lambda o: (of[o], o))
                scored.append((option, p * of[option] / sum(of.values())))
                break
    return ranked(scored, limit)
