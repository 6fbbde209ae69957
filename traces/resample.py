"""More workflows from few, without inventing reuse; and fewer from many.

A segment of the prefix tree is global when sequences of at least two distinct original workflows run through
it (a system prompt, a shared passage). Copies of a workflow share its global segments with everybody, as the
originals do; everything else is private, and every copy gets its own. Works on the tree's columns directly:
O(segments and stages of the result), no re-interning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from traces import draws
from traces.branch_resample import rekeyed_branches, take_branches
from traces.errors import InputError
from traces.prefix import Int32, Int64, PrefixTree
from traces.ranges import ranges
from traces.schema import Workload
from traces.transcript import Transcript

GLOBAL = -1


def resample(workload: Workload, workflows: int, seed: int) -> Workload:
    """Return `workflows` workflows drawn from `workload`; deterministic in (workload, workflows, seed).

    Originals are drawn in rounds: each once a round, in an order keyed by (seed, round), so none is drawn a
    second time before all were drawn once. The copy of round r > 0 is named "NAME#r"; its output token ids
    pass through a bijection keyed by r, so that equality holds within a round (as between the originals)
    and never between a workflow and its copy. So do contents, arguments, resources and open outcomes of branches that
    only one original has. No arrival times: loads decide. Does not mutate.
    """
    if workflows < 1:
        raise InputError(f"resample: workflows={workflows}, expected at least 1")
    n = workload.n_workflows
    if n == 0:
        raise InputError(f"{workload.name}: no workflow to resample from")
    rounds = -(-workflows // n)
    keys = [draws.bits_array(seed, "resample", r, np.arange(n)) for r in range(rounds)]
    order = [np.argsort(k, kind="stable") for k in keys]
    pick = np.concatenate(order)[:workflows]
    turn = np.repeat(np.arange(rounds), n)[:workflows]
    owner = segment_owner(workload)
    names = tuple(
        workload.workflow_names[w] + (f"#{r}" if r else "")
        for w, r in zip(pick.tolist(), turn.tolist(), strict=True)
    )
    taken = take(workload, pick, owner, names)
    if taken.output_ids is not None and taken.output_ptr is not None and rounds > 1:
        stages = np.bincount(workload.stage_workflow, minlength=n)[pick]
        turns = np.repeat(np.repeat(turn, stages), np.diff(taken.output_ptr))
        taken = replace(taken, output_ids=_rekeyed(taken.output_ids, turns))
        if taken.transcript is not None:
            t = taken.transcript
            turns = np.repeat(np.repeat(turn, stages), np.diff(t.prompt_ptr))
            taken = replace(taken, transcript=replace(t, prompt_ids=_rekeyed(t.prompt_ids, turns)))
    if taken.branches is not None and rounds > 1:
        taken = replace(taken, branches=rekeyed_branches(taken, pick, turn))
    shared = owner == GLOBAL
    length = workload.prefix.end_tokens - workload.prefix.start_tokens
    resampled = {
        "from": workload.name,
        "from_digest": workload.digest(),
        "workflows": workflows,
        "originals": n,
        "seed": seed,
        "global_tokens": int(length[shared].sum()),
    }
    return replace(taken, provenance={**workload.provenance, "resampled": resampled})


def replayed(workload: Workload, share: float, seed: int) -> Workload:
    """Return as many workflows, of which about `share` are exact repeats of earlier ones: same prompts, same contents.

    Each workflow after the first is, by a draw keyed by (seed, its place), replaced by a copy of an earlier one that is
    not a repeat itself. No arrival times. Does not mutate.
    """
    if not 0 <= share < 1:
        raise InputError(f"replayed: share={share}, expected at least 0 and below 1")
    n = workload.n_workflows
    luck = draws.uniform_array(seed, "replay", np.arange(n))
    which = draws.uniform_array(seed, "replay of", np.arange(n))
    pick, originals = np.arange(n), list[int]()
    for i in range(n):
        if originals and luck[i] < share:
            pick[i] = originals[int(which[i] * len(originals))]
        else:
            originals.append(i)
    times = np.bincount(pick, minlength=n + 1)
    owner = segment_owner(workload)
    owner = np.where((owner != GLOBAL) & (times[owner] > 1), np.int32(GLOBAL), owner).astype(np.int32)
    turn = np.array([int(np.count_nonzero(pick[:i] == w)) for i, w in enumerate(pick.tolist())])
    names = tuple(
        workload.workflow_names[w] + (f"+{t}" if t else "")
        for w, t in zip(pick.tolist(), turn.tolist(), strict=True)
    )
    said = {"share": share, "seed": seed, "repeats": int(np.count_nonzero(turn))}
    return replace(take(workload, pick, owner, names), provenance={**workload.provenance, "replayed": said})


def subset(workload: Workload, indices: Sequence[int]) -> Workload:
    """Return the workflows at `indices`, in that order, each at most once; arrival times and identity stay.

    What the chosen workflows share stays shared; segments only others used are dropped. Does not mutate.
    """
    pick = np.array(indices, dtype=np.int64).reshape(-1)
    if len(pick) and (pick.min() < 0 or pick.max() >= workload.n_workflows):
        raise InputError(
            f"{workload.name}: workflow {int(pick.max() if pick.min() >= 0 else pick.min())} out of range,"
            f" allowed: 0 to {workload.n_workflows - 1}"
        )
    if len(np.unique(pick)) != len(pick):
        raise InputError(f"{workload.name}: a subset takes a workflow once; resample() makes copies")
    chosen = np.zeros(workload.n_workflows, dtype=bool)
    chosen[pick] = True
    owner = segment_owner(workload)
    # A segment is kept in one piece when a chosen workflow runs through it: private ones by their owner.
    used = _runs_through(workload, chosen[workload.stage_workflow])
    taken = take(workload, pick, owner, tuple(workload.workflow_names[i] for i in pick.tolist()), used)
    arrival = workload.workflow_arrival_ns
    provenance = {**workload.provenance, "subset": {"from_digest": workload.digest(), "workflows": len(pick)}}
    return replace(
        taken, workflow_arrival_ns=None if arrival is None else arrival[pick], provenance=provenance
    )


def segment_owner(workload: Workload) -> Int32:
    """Return int32[segments]: the one workflow that runs through a segment, `GLOBAL` for two or more."""
    n = len(workload.prefix)
    low, high = [workload.n_workflows] * n, [-1] * n
    for column in (workload.prompt_segment, workload.sequence_segment):
        for s, w in zip(column.tolist(), workload.stage_workflow.tolist(), strict=True):
            if s >= 0:
                low[s], high[s] = min(low[s], w), max(high[s], w)
    parent = workload.prefix.parent_segment.tolist()
    for s in range(n - 1, -1, -1):  # children come after parents
        p = parent[s]
        if p >= 0:
            low[p], high[p] = min(low[p], low[s]), max(high[p], high[s])
    least, most = np.array(low, dtype=np.int32), np.array(high, dtype=np.int32)
    return np.where(least == most, least, np.int32(GLOBAL)).astype(np.int32)


def _runs_through(workload: Workload, stages: NDArray[np.bool_]) -> NDArray[np.bool_]:
    used = np.zeros(len(workload.prefix) + 1, dtype=bool)  # the last cell takes index -1
    used[workload.prompt_segment[stages]] = True
    used[workload.sequence_segment[stages]] = True
    parent = workload.prefix.parent_segment.tolist()
    flags = used.tolist()
    for s in range(len(workload.prefix) - 1, -1, -1):
        if flags[s]:
            flags[parent[s]] = True
    return np.array(flags[:-1], dtype=bool)


def take(
    workload: Workload,
    pick: Int64,
    owner: Int32,
    names: tuple[str, ...],
    used: NDArray[np.bool_] | None = None,
) -> Workload:
    """Return the picked workflows with the global segments (those `used`) once and private ones for each."""
    w = workload
    stage_ptr = np.searchsorted(w.stage_workflow, np.arange(w.n_workflows + 1)).astype(np.int64)
    stages = ranges(stage_ptr, pick)
    rows = stages.rows
    links = ranges(w.parent_ptr, rows)
    shift = (stages.start - stage_ptr[pick])[stages.copy[links.copy]]
    # Segments: global ones first, then each copy's private ones, both in the old order: parents stay before.
    shared = np.flatnonzero((owner == GLOBAL) & (used if used is not None else True))
    private = np.argsort(owner, kind="stable")[int(np.count_nonzero(owner == GLOBAL)) :]
    private_ptr = np.searchsorted(owner[private], np.arange(w.n_workflows + 1)).astype(np.int64)
    rank = np.zeros(
        len(owner) + 1, dtype=np.int64
    )  # among the global, or among the owner's; index -1: unused
    rank[shared] = np.arange(len(shared))
    rank[private] = np.arange(len(private)) - private_ptr[owner[private]]
    owned = ranges(private_ptr, pick)
    base = len(shared) + owned.start

    def renamed(segment: Int32, copy: Int64) -> Int32:
        is_private = np.concatenate([owner, [GLOBAL]])[segment] != GLOBAL
        new = rank[segment] + np.where(is_private, base[copy], 0) if len(base) else rank[segment]
        return np.where(segment < 0, -1, new).astype(np.int32)

    old = np.concatenate([shared, private[owned.rows]])
    copy = np.concatenate([np.zeros(len(shared), dtype=np.int64), owned.copy])
    tree = PrefixTree(
        renamed(w.prefix.parent_segment[old], copy), w.prefix.start_tokens[old], w.prefix.end_tokens[old]
    )
    outputs = None if w.output_ptr is None else ranges(w.output_ptr, rows)
    transcript = None
    if w.transcript is not None:
        t = w.transcript
        prompts = ranges(t.prompt_ptr, rows)
        moved = np.where(t.prompt_base[rows] < 0, 0, (stages.start - stage_ptr[pick])[stages.copy])
        transcript = Transcript(
            t.block_names,
            t.output_block[outputs.rows] if outputs is not None else t.output_block[:0],
            (t.prompt_base[rows] + moved).astype(np.int32),
            t.prompt_kept[rows],
            np.append(prompts.start, len(prompts.rows)),
            t.prompt_ids[prompts.rows],
        )
    return replace(
        w,
        workflow_names=names,
        workflow_arrival_ns=None,
        stage_workflow=stages.copy.astype(np.int32),
        stage_kind=w.stage_kind[rows],
        stage_agent=w.stage_agent[rows],
        stage_duration_ns=w.stage_duration_ns[rows],
        prompt_tokens=w.prompt_tokens[rows],
        output_tokens=w.output_tokens[rows],
        parent_ptr=np.append(links.start, len(links.rows)),
        parent_idx=(w.parent_idx[links.rows] + shift).astype(np.int32),
        prefix=tree,
        prompt_segment=renamed(w.prompt_segment[rows], stages.copy),
        prompt_shared_tokens=w.prompt_shared_tokens[rows],
        sequence_segment=renamed(w.sequence_segment[rows], stages.copy),
        sequence_shared_tokens=w.sequence_shared_tokens[rows],
        output_ptr=None if outputs is None else np.append(outputs.start, len(outputs.rows)),
        branches=None if w.branches is None else take_branches(w, pick),
        output_ids=None if outputs is None or w.output_ids is None else w.output_ids[outputs.rows],
        transcript=transcript,
    )


def _rekeyed(ids: NDArray[np.uint32], turn: Int64) -> NDArray[np.uint32]:
    """Return ids through a keyed bijection of 32 bits (the murmur3 finaliser); turn 0 keeps them."""
    turns = np.arange(int(turn.max(initial=0)) + 1)
    salts = (draws.bits_array(0, "resample/ids", turns) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    salt = salts[turn]
    with np.errstate(over="ignore"):
        x = ids ^ salt
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        x = x ^ (x >> np.uint32(16))
    return np.where(turn == 0, ids, x).astype(np.uint32)
