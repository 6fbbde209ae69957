"""Prefetch that may displace active cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from policies._pbkv_prefetch import ValuePrefetcher, ValueState
from traces.errors import InputError


@dataclass(frozen=True)
class Aggressive(ValuePrefetcher):
    """Conservative, and beyond free and retired space up to rho of all KV space from active nodes, lowest score first.

    rho         share of HBM's KV capacity
    limit       what rho bounds: outstanding, what was prefetched and neither used nor evicted yet (the default: a
                single step's link volume is far below rho of a pool, so that as a bound of one call it hardly binds);
                call, the displacement of one decision
    access      literal: agents that read the node; inherit: and those that are passed what these read
    passes      with access=inherit: all, or pairs such as planner>coder,coder>tester
    unfitting   what follows a node too large for what is left: skip it (and all below it), or stop
    Source: PBKV, appendix E.1, which does not say what rho bounds over time.
    """

    rho: float = 0.2
    limit: Literal["outstanding", "call"] = "outstanding"
    label = "aggressive prefetch"
    source = "PBKV appendix E"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.rho <= 1:
            raise InputError(f"rho={self.rho}, allowed: 0 to 1")

    def displaceable_tokens(self, state: ValueState, outstanding_tokens: int) -> int:
        """Return rho of the capacity, less what is outstanding where that is the limit. Does not mutate."""
        allowed = int(self.rho * state.capacity_tokens)
        return max(allowed - outstanding_tokens, 0) if self.limit == "outstanding" else allowed
