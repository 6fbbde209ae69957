"""How speculation is carried out, whatever the gate decides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from policies.api import Gate
from traces.errors import InputError, nearest

CHOICES = {
    "demand": ("join", "race", "drop"),
    "priority": ("equal", "low"),
    "routing": ("other", "affine"),
}  # fmt: skip


@dataclass(frozen=True)
class BranchingConfig:
    """Options of the controller.

    candidates      most candidates drafted a branch
    fills_max       slots: fills in flight, over all replicas
    kv_share        share of the KV pool, over all replicas, that fills may reserve (Fig. 5b's range)
    demand          what a demand on a running fill does: join (wait), race (execute too, first one wins), drop
                    (cancel the fill)
    patience        a join becomes a race when the fill's stage has run this many times its template's mean: it has a
                    head start, so that only one that is stuck or starved loses against a fresh execution
    depth           cycles of nested branches that may run ahead
    priority        of fills in the engine: equal (and not preemptible) or low
    routing         of fills: other worker than the workflow's, or affine to its prefix
    horizon_ns      how long results of branches with several valid outcomes wait for another taker
    readmit         ask the gate again at every probe while the window is open
    """

    candidates: int = 4
    fills_max: int = 8
    kv_share: float = 0.25
    demand: str = "join"
    patience: float = 4.0
    depth: int = 1
    priority: str = "equal"
    routing: str = "other"
    horizon_ns: int = 60_000_000_000
    readmit: bool = False

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InputError(nearest(str(getattr(self, name)), allowed, what=f"branching.{name}"))
        for name in ("candidates", "fills_max", "depth", "horizon_ns"):
            if getattr(self, name) < 0:
                raise InputError(f"branching.{name}={getattr(self, name)}: expected at least 0")
        if not self.patience > 0:
            raise InputError(f"branching.patience={self.patience}: expected above 0")
        if not 0 <= self.kv_share <= 1:
            raise InputError(f"branching.kv_share={self.kv_share}: expected a share in [0, 1]")

    def styled(self, gate: Gate[Any]) -> BranchingConfig:
        """Return the config with what the gate's system fixes."""
        fixed: dict[str, Any] = dict(gate.style)
        return replace(self, **fixed)
