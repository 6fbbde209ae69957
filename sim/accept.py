"""Which drafted tokens the target model accepts: replayed from the trace where it holds token ids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policies.views import Draft
from sim.config import AcceptConfig
from traces.draws import uniform
from traces.schema import Workload


class Acceptance:
    """Greedy verification of drafts. Read-only after construction.

    With output ids the accepted prefix is exact: a token counts when it equals the recorded one. Without, a
    stated process decides, one draw for each (stage, position in the output), so that two arms that draft the
    same position meet the same luck.
    """

    def __init__(self, workload: Workload, config: AcceptConfig, seed: int) -> None:
        self._ptr = None if workload.output_ptr is None else workload.output_ptr.tolist()
        self._output_ptr = workload.output_ptr
        self._ids = workload.output_ids
        self._transcript = workload.transcript
        self._rate = config.rate
        self._seed = seed

    @property
    def replayed(self) -> bool:
        """Whether acceptance comes from recorded token ids."""
        return self._ids is not None

    def prefix(self, stage: int, position: int, draft: Draft, limit: int) -> int:
        """Return how many of the first `limit` drafted tokens are accepted after `position` output tokens."""
        limit = min(limit, len(draft.tokens))
        if self._ids is not None and self._ptr is not None:
            start = self._ptr[stage] + position
            truth = self._ids[start : min(start + limit, self._ptr[stage + 1])]
            wrong = np.flatnonzero(truth != draft.tokens[: len(truth)])
            return int(wrong[0]) if len(wrong) else len(truth)
        for k in range(limit):
            if uniform(self._seed, "accept", stage, position + k) >= self._rate:
                return k
        return limit

    def emitted(self, stage: int, position: int, count: int) -> NDArray[np.uint32]:
        """Return uint32[count]: recorded output tokens from `position` on; zeros without ids in the trace."""
        if self._ids is None or self._ptr is None:
            return np.zeros(count, dtype=np.uint32)
        start = self._ptr[stage] + position
        return self._ids[start : start + count]

    def blocks(self, stage: int, position: int, count: int) -> NDArray[np.int8] | None:
        """Return int8[count]: the semantic block open after each of these output tokens; None where not known."""
        if self._transcript is None or self._ptr is None:
            return None
        start = self._ptr[stage] + position
        return self._transcript.output_block[start : start + count]

    def prompt(self, stage: int) -> NDArray[np.uint32]:
        """Return uint32[n], the prompt's token ids; empty where the trace has none."""
        t = self._transcript
        if t is None or self._ids is None or self._output_ptr is None:
            return np.zeros(0, dtype=np.uint32)
        return t.prompt(stage, self._output_ptr, self._ids)
