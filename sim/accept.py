"""Which drafted tokens the target model accepts: replayed from the trace where it holds token ids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policies.views import Draft
from sim.config import AcceptConfig
from traces.draws import uniform
from traces.schema import Workload

_NO_IDS: NDArray[np.uint32] = np.zeros(0, dtype=np.uint32)


class Acceptance:
    """Greedy verification of drafts. Read-only after construction.

    With output ids the accepted prefix is exact: a token counts when it equals the recorded one. Without, and for
    drafters whose tokens only their model knows, a stated process decides: the k-th drafted token, given that those
    before it were accepted, is accepted with the k-th of `positions`. Its luck is one draw for each (stage, position
    in the output), so that two arms that draft the same position meet the same luck; with the probability
    `autocorrelation` a position shares the luck of the one before it, which makes that their correlation and leaves
    the probabilities as they are.
    """

    def __init__(
        self, workload: Workload, config: AcceptConfig, seed: int, stated: tuple[float, ...] = ()
    ) -> None:
        self._output_ptr = workload.output_ptr
        self._ptr: list[int] = [] if workload.output_ptr is None else workload.output_ptr.tolist()
        self._ids = workload.output_ids
        self._transcript = workload.transcript
        self._positions = stated or config.positions or (config.rate,)
        self._sticky = config.autocorrelation
        self._seed = seed
        self.replayed = workload.output_ids is not None and not stated

    def prefix(self, stage: int, position: int, draft: Draft, limit: int) -> int:
        """Return how many of the first `limit` drafted tokens are accepted after `position` output tokens."""
        tokens = draft.tokens
        limit = min(limit, len(tokens))
        if self.replayed:
            assert self._ids is not None
            start = self._ptr[stage] + position
            truth = self._ids[start : min(start + limit, self._ptr[stage + 1])]
            n = len(truth)
            if not n or truth[0] != tokens[0]:
                return 0
            same = truth == tokens[:n]
            first = int(same.argmin())
            return first if not same[first] else n
        last = len(self._positions) - 1
        for k in range(limit):
            if self._luck(stage, position + k) >= self._positions[min(k, last)]:
                return k
        return limit

    def _luck(self, stage: int, position: int) -> float:
        while (
            self._sticky and position and uniform(self._seed, "accept/again", stage, position) < self._sticky
        ):
            position -= 1
        return uniform(self._seed, "accept", stage, position)

    def emitted(self, stage: int, position: int, count: int) -> NDArray[np.uint32]:
        """Return uint32[count]: recorded output tokens from `position` on; zeros without ids in the trace."""
        if self._ids is None:
            return np.zeros(count, dtype=np.uint32)
        start = self._ptr[stage] + position
        return self._ids[start : start + count]

    def blocks(self, stage: int, position: int, count: int) -> NDArray[np.int8] | None:
        """Return int8[count]: the semantic block open after each of these output tokens; None where not known."""
        if self._transcript is None or not self._ptr:
            return None
        start = self._ptr[stage] + position
        return self._transcript.output_block[start : start + count]

    def prompt(self, stage: int) -> NDArray[np.uint32]:
        """Return uint32[n], the prompt's token ids; empty where the trace has none."""
        t = self._transcript
        if t is None or self._ids is None or self._output_ptr is None:
            return _NO_IDS
        return t.prompt(stage, self._output_ptr, self._ids)
