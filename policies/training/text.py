"""The text stream: a vector for each invocation, made of what a trace without hidden states still tells.

The paper projects the served model's last hidden state of the prefill. Traces have none, so this is a stand-in, and
results with it are not results with hidden states: 16 columns say in which power of two the prompt's length lies, 16
in which sixteenth of that octave, and 32 hold signed, hashed n-grams (n = 1, 2, 3) of the last output tokens of the
calls that the invocation follows, scaled to length 1. Where a trace has no token ids, those 32 are zero.

Everything is known when the invocation is released: no later output is read. Only exact operations (whole numbers,
one square root) are used, so that every CPU makes the same vectors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces import draws
from traces.schema import StageKind, Workload

DIMS = 64
TAIL_TOKENS = 64
_OCTAVES = 16
_PARTS = 16
_GRAMS = DIMS - _OCTAVES - _PARTS


def vector(prompt_tokens: int, ids: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Return float32[DIMS] of an invocation: its prompt's length, and token ids of the outputs before it."""
    out = np.zeros(DIMS, dtype=np.float32)
    if prompt_tokens > 0:
        octave = prompt_tokens.bit_length() - 1
        out[min(octave, _OCTAVES - 1)] = 1
        out[_OCTAVES + (((prompt_tokens << 4) >> octave) & (_PARTS - 1))] = 1
    grams = np.zeros(_GRAMS, dtype=np.int64)
    tail = ids[-TAIL_TOKENS:].astype(np.int64)
    for n in (1, 2, 3):
        if len(tail) >= n:
            hashed = draws.bits_array(n, "text n-gram", *(tail[i : len(tail) - n + 1 + i] for i in range(n)))
            sign = 1 - 2 * (hashed >> np.uint64(63)).astype(np.int64)
            np.add.at(grams, (hashed % np.uint64(_GRAMS)).astype(np.int64), sign)
    length = int((grams * grams).sum())
    if length:
        out[_OCTAVES + _PARTS :] = (grams / np.sqrt(np.float64(length))).astype(np.float32)
    return out


class TextStream:
    """Vectors of a workload's LLM stages, made when asked for."""

    def __init__(self, workload: Workload) -> None:
        self._w = workload
        self._parents = workload.parent_ptr.tolist()

    def vector(self, stage: int) -> NDArray[np.float32]:
        """Return float32[DIMS] of an LLM stage. Does not mutate."""
        return vector(int(self._w.prompt_tokens[stage]), self._ids_before(stage))

    def _ids_before(self, stage: int) -> NDArray[np.uint32]:
        """Return output ids of the LLM calls that `stage` waits for, tools and waits in between skipped."""
        w = self._w
        if w.output_ptr is None or w.output_ids is None:
            return np.zeros(0, dtype=np.uint32)
        found: set[int] = set()
        ask, seen = [stage], {stage}
        while ask:
            s = ask.pop()
            for p in w.parent_idx[self._parents[s] : self._parents[s + 1]].tolist():
                if p in seen:
                    continue
                seen.add(p)
                if w.stage_kind[p] == StageKind.LLM:
                    found.add(p)
                else:
                    ask.append(p)
        return np.concatenate(
            [
                np.zeros(0, dtype=np.uint32),
                *(w.output_ids[w.output_ptr[p] : w.output_ptr[p + 1]] for p in sorted(found)),
            ]
        )
