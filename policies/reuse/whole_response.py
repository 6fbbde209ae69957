"""InstCache: whole responses of requests that a model predicted, or that came before (arXiv 2411.13820)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from policies import reuse_names
from policies.api import HostInfo, ReuseName, ReusePolicy, StageView
from traces.errors import InputError


@dataclass(frozen=True)
class WholeResponse(ReusePolicy[None]):
    """One name a request. Prefilled offline with every request whose negative log-likelihood is at most `nll_max`.

    The published cache never invalidates. Here the host's guards hold for every policy: what reads a resource that
    was written is not served, prefilled or not.

    nll_max    threshold on the request's negative log-likelihood; 0 prefills nothing
    online     keep the responses of requests served as well
    capacity   most responses kept, 0: all
    eviction   which go first: lru, lfu or fifo
    """

    nll_max: float = 0.0
    online: bool = True
    capacity: int = 0
    eviction: Literal["lru", "lfu", "fifo"] = "lru"

    label = "InstCache"
    source = "arXiv 2411.13820"

    def __post_init__(self) -> None:
        if not self.nll_max >= 0:
            raise InputError(f"reuse.nll_max={self.nll_max}: expected at least 0")

    def new_state(self, host: HostInfo) -> None:
        """The store is the host's."""

    def names(self, state: None, stage: StageView) -> Sequence[ReuseName]:
        """Return the name of the request that begins with this stage; none for later stages."""
        return [reuse_names.of_scope(s) for s in stage.scopes if s.kind == "request" and self._kept(s.nll)]

    def limits(self) -> tuple[int, str]:
        """Return capacity and eviction."""
        return self.capacity, self.eviction

    def prefilled(self, state: None, stage: StageView, name: ReuseName) -> bool:
        """Say whether the request was likely enough to be enumerated offline."""
        return any(s.kind == "request" and self._likely(s.nll) for s in stage.scopes)

    def _likely(self, nll: float | None) -> bool:
        return self.nll_max > 0 and nll is not None and nll <= self.nll_max

    def _kept(self, nll: float | None) -> bool:
        return self.online or self._likely(nll)
