"""The benchmark client of a closed loop: how many requests it sends, and how equal they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.draws import uniform_array
from traces.errors import InputError
from traces.flat import flat_workload
from traces.schema import Workload

# Beyond this many requests the means move by less than a percent; a table of cases stays quick.
MAX_REQUESTS = 20_000


@dataclass(frozen=True)
class ClosedLoop:
    """`concurrency` slots, each sending its next request when its last one is answered.

    isl, osl         prompt tokens of every request; output tokens on average
    rounds           requests in all = rounds·concurrency. The first round starts at once, as clients do: its
                     prompts queue for each other, so the mean time to first token depends on `rounds`
    spread_permille  output tokens are uniform within ± this share of osl; 0: all equal, and then requests that
                     began together end together, round after round, which real jitter soon undoes
    """

    isl: int
    osl: int
    concurrency: int
    rounds: int = 10
    spread_permille: int = 500

    def __post_init__(self) -> None:
        for name in ("isl", "osl", "concurrency", "rounds"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)}: expected a whole number of at least 1")
        if not 0 <= self.spread_permille <= 999:
            raise InputError(f"spread_permille={self.spread_permille}: expected 0 to 999")

    def workload(self, seed: int = 0) -> Workload:
        """Return the requests, one workflow each; prompts share nothing."""
        n = min(self.rounds * self.concurrency, max(MAX_REQUESTS, self.concurrency))
        return flat_workload(
            f"closed loop {self.isl}+{self.osl} x{self.concurrency}",
            None,
            np.full(n, self.isl, dtype=np.int32),
            self._outputs(seed, n),
            {"source": "generated: benchmark client", "seed": seed},
        )

    def _outputs(self, seed: int, n: int) -> NDArray[np.int32]:
        # Strata of equal size, in a drawn order: the mean is osl however few the requests are.
        half = self.osl * self.spread_permille // 1000
        order = np.argsort(uniform_array(seed, "client output tokens", np.arange(n)), kind="stable")
        # Both halves alike, so that they cancel to the token.
        up = (half * np.arange(n, 0, -2)) // max(n, 1)
        offset = np.concatenate([up[: n // 2], np.zeros(n % 2, dtype=np.int64), -up[: n // 2][::-1]])
        lengths: NDArray[np.int32] = np.maximum(self.osl + offset[order], 1).astype(np.int32)
        return lengths
