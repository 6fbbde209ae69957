"""What recorded outputs repeat, measured on the token ids of a workload; no engine runs.

Repetition counts tokens inside spans of at least k tokens that were generated before: by the same query (a workflow) or
another one, in the same kind of semantic block or another. Drafts are made at every position by the very drafter that
the simulator and the live engine load, and their consensus is held against what came.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.stats import Interval, mean_interval
from policies.registry import load
from policies.views import HostInfo, RequestView
from traces import draws
from traces.schema import Workload

SOURCES = ("same query, same block", "same query, other blocks", "other query, same block",
           "other query, other blocks", "all other queries, same block")  # fmt: skip
BINS = (0.0, 0.25, 0.5, 0.75, 1.0)
DRAFT = 8
Ids = NDArray[np.uint32]


@dataclass(frozen=True)
class Segment:
    """A run of output tokens of one kind of block."""

    block: int
    tokens: Ids


def segments(workload: Workload) -> list[list[Segment]]:
    """Return the segments of each workflow in order; a token lies in the block open before it."""
    t, ptr, ids = workload.transcript, workload.output_ptr, workload.output_ids
    assert t is not None
    assert ptr is not None
    assert ids is not None
    out: list[list[Segment]] = [[] for _ in range(workload.n_workflows)]
    for stage, workflow in enumerate(workload.stage_workflow.tolist()):
        start, end = int(ptr[stage]), int(ptr[stage + 1])
        if start == end:
            continue
        lies_in = np.concatenate([[0], t.output_block[start : end - 1]])
        cuts = [0, *(np.flatnonzero(np.diff(lies_in)) + 1).tolist(), end - start]
        for a, b in pairwise(cuts):
            out[workflow].append(Segment(int(lies_in[a]), ids[start + a : start + b]))
    return out


def grams(tokens: Ids, k: int) -> NDArray[np.uint64]:
    """Return uint64[max(n - k + 1, 0)]: a hash of each span of k tokens.

    >>> a = grams(np.array([1, 2, 3, 1, 2, 3], np.uint32), 3)
    >>> bool(a[0] == a[3]), len(set(a.tolist()))
    (True, 3)
    """
    n = len(tokens) - k + 1
    if n <= 0:
        return np.zeros(0, dtype=np.uint64)
    mixed = draws.bits_array(0, "gram", tokens.astype(np.int64))
    weight = draws.bits_array(0, "gram/place", np.arange(k)) | np.uint64(1)
    with np.errstate(over="ignore"):
        total: NDArray[np.uint64] = mixed[:n] * weight[0]
        for i in range(1, k):
            total = total + mixed[i : i + n] * weight[i]
    return total


def repeated(workload: Workload, k: int) -> dict[str, list[tuple[int, int]]]:
    """Return for each source (repeated tokens, tokens) of every workflow that has any."""
    hashed = [[(s, grams(s.tokens, k)) for s in segs] for segs in segments(workload)]
    by_kind: dict[int, Counter[int]] = {}  # block -> span -> workflows that have it there
    for segs in hashed:
        for b in {s.block for s, _ in segs}:
            by_kind.setdefault(b, Counter()).update(_seen(segs, b, same=True))
    shared = {b: {g for g, n in counts.items() if n > 1} for b, counts in by_kind.items()}
    out: dict[str, list[tuple[int, int]]] = {s: [] for s in SOURCES}
    for w, mine in enumerate(hashed):
        kinds = {s.block for s, _ in mine}
        other = hashed[_other(w, len(hashed))]
        same_kind = {b: _seen(other, b, same=True) for b in kinds}
        other_kind = {b: _seen(other, b, same=False) for b in kinds}
        before: dict[int, set[int]] = {b: set() for b in kinds}
        covered = dict.fromkeys(SOURCES, 0)
        for segment, spans in mine:
            block, listed = segment.block, spans.tolist()
            again = np.ones(len(spans), dtype=bool)
            again[np.unique(spans, return_index=True)[1]] = False  # seen earlier in the same segment
            elsewhere = set().union(*(found for b, found in before.items() if b != block))
            stores = (before[block], elsewhere, same_kind[block], other_kind[block], shared[block])
            for name, store in zip(SOURCES, stores, strict=True):
                hit = np.fromiter((x in store for x in listed), dtype=bool, count=len(listed))
                covered[name] += _covered(hit | again if name == SOURCES[0] else hit, k)
            before[block].update(listed)
        total = sum(len(s.tokens) for s, _ in mine)
        if total:
            for name in SOURCES:
                out[name].append((covered[name], total))
    return out


def _seen(segs: Sequence[tuple[Segment, NDArray[np.uint64]]], block: int, *, same: bool) -> set[int]:
    return {g for s, spans in segs if (s.block == block) == same for g in spans.tolist()}


def _other(workflow: int, count: int) -> int:
    step = 1 + draws.bits(0, "other workflow", workflow) % max(count - 1, 1)
    return (workflow + step) % count


def _covered(hit: NDArray[np.bool_], k: int) -> int:
    ends = np.zeros(len(hit) + k, dtype=np.int64)
    ends[:-k] += hit
    ends[k:] -= hit
    return int(np.count_nonzero(np.cumsum(ends) > 0))


@dataclass(frozen=True)
class Drafts:
    """Drafts at every position: redundancy c/n, matches n, accepted share of the consensus, workflow."""

    redundancy: NDArray[np.float64]
    matches: NDArray[np.int64]
    accepted: NDArray[np.float64]
    workflow: NDArray[np.int64]


def drafts(workload: Workload, host: HostInfo, most_workflows: int) -> Drafts:
    """Draft at every output position of the first workflows with the structured drafter at its defaults."""
    drafter: Any = load("drafters", "structured")
    state = drafter.new_state(host)
    t, ptr, ids = workload.transcript, workload.output_ptr, workload.output_ids
    assert t is not None
    assert ptr is not None
    assert ids is not None
    rows: list[tuple[float, int, float, int]] = []
    for stage, workflow in enumerate(workload.stage_workflow.tolist()):
        start, end = int(ptr[stage]), int(ptr[stage + 1])
        if workflow >= most_workflows or start == end:
            continue
        view = RequestView(stage, stage, workflow, 0, 0, 0, query=workflow)
        drafter.begin(state, view, ids[:0])
        for at in range(start, end):
            drafter.commit(state, stage, ids[at : at + 1], t.output_block[at : at + 1])
            draft = drafter.propose(state, stage, DRAFT)
            n = min(draft.consensus_tokens, len(draft.tokens), end - at - 1)
            if n and draft.matches:
                same = draft.tokens[:n] == ids[at + 1 : at + 1 + n]
                right = n if same.all() else int(same.argmin())
                rows.append((draft.redundancy, draft.matches, right / n, workflow))
        drafter.finish(state, stage)
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    return Drafts(table[:, 0], table[:, 1].astype(np.int64), table[:, 2], table[:, 3].astype(np.int64))


def slope(found: Drafts, keep: NDArray[np.bool_]) -> Interval | None:
    """Return the slope of acceptance over redundancy, its 95 % interval by leaving out a workflow at a time."""
    x, y, w = found.redundancy[keep], found.accepted[keep], found.workflow[keep]
    names = np.unique(w)
    whole = _least_squares(x, y)
    if len(names) < 3 or not math.isfinite(whole):
        return None
    parts = [_least_squares(x[w != n], y[w != n]) for n in names]
    n = len(parts)
    pseudo = [n * whole - (n - 1) * p for p in parts]
    return mean_interval(pseudo)


def _least_squares(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    if len(x) < 2:
        return math.nan
    spread = float(((x - x.mean()) ** 2).sum())
    return float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread > 0 else math.nan


def by_redundancy(found: Drafts, keep: NDArray[np.bool_]) -> list[float]:
    """Return the mean accepted share in each of `BINS`, NaN where nothing was drafted."""
    out = []
    for low, high in pairwise(BINS):
        inside = keep & (found.redundancy > low) & (found.redundancy <= high)
        out.append(float(found.accepted[inside].mean()) if inside.any() else math.nan)
    return out
