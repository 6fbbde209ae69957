"""Prompts as differences: an agent's prompt mostly repeats an earlier prompt and output of the same workflow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Ids = NDArray[np.uint32]


class PromptDeltas:
    """Collects prompts stage by stage, each as what it adds to the earlier stage it shares most with. Mutated."""

    def __init__(self) -> None:
        self._base: list[int] = []
        self._kept: list[int] = []
        self._own: list[_Ids] = []
        self._workflow = -1
        self._seen: list[tuple[int, _Ids]] = []  # stages of the workflow, and their prompt with output

    @property
    def any(self) -> bool:
        """Whether any prompt was given."""
        return any(len(o) for o in self._own)

    def append(self) -> None:
        """Add a stage without a prompt."""
        self._base.append(-1)
        self._kept.append(0)
        self._own.append(np.zeros(0, dtype=np.uint32))

    def replace_last(self, workflow: int, prompt: _Ids | None, output: _Ids | None) -> None:
        """Give the last stage its prompt and output; None: not known."""
        if prompt is None:
            return
        if workflow != self._workflow:
            self._workflow, self._seen = workflow, []
        stage, best, kept = len(self._base) - 1, -1, 0
        for earlier, sequence in reversed(self._seen):
            n = _common(sequence, prompt)
            if n > kept:
                best, kept = earlier, n
            if kept == len(prompt):
                break
        self._base[-1], self._kept[-1] = best, kept
        self._own[-1] = prompt[kept:]
        whole = prompt if output is None else np.concatenate([prompt, output])
        self._seen.append((stage, whole))

    def columns(
        self,
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64], _Ids]:
        """Return (prompt_base, prompt_kept, prompt_ptr, prompt_ids) of `traces.transcript.Transcript`."""
        ends = np.cumsum([0, *(len(o) for o in self._own)])
        ids = np.concatenate(self._own) if self._own else np.zeros(0, dtype=np.uint32)
        return (
            np.array(self._base, dtype=np.int32),
            np.array(self._kept, dtype=np.int32),
            ends.astype(np.int64),
            ids.astype(np.uint32),
        )


def _common(a: _Ids, b: _Ids) -> int:
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n
