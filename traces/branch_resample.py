"""Branches of picked workflows, and of copies whose private identity is not their original's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces import draws
from traces.branches import Branches
from traces.prefix import Int64
from traces.ranges import ranges
from traces.schema import Workload


def take_branches(w: Workload, pick: Int64) -> Branches:
    """Return the branches of workflows `pick` of `w`, in that order; writes of no workflow stay. Does not mutate."""
    b = w.branches
    assert b is not None
    every = np.arange(w.n_workflows + 1)
    stage_ptr = np.searchsorted(w.stage_workflow, every).astype(np.int64)
    stages = ranges(stage_ptr, pick)
    branch_ptr = np.searchsorted(w.stage_workflow[b.branch_stage], every).astype(np.int64)
    branches = ranges(branch_ptr, pick)
    options = ranges(b.option_ptr, branches.rows)
    paths = ranges(b.option_stage_ptr, options.rows)
    reads, writes = ranges(b.read_ptr, stages.rows), ranges(b.write_ptr, stages.rows)
    stage_shift = stages.start - stage_ptr[pick]
    option_start = np.append(options.start, len(options.rows))[branches.start]
    option_shift = option_start - b.option_ptr[branch_ptr[pick]]

    def by_workflow(owner: NDArray[np.int32]) -> tuple[Int64, Int64]:
        order = np.argsort(owner, kind="stable")
        found = ranges(np.searchsorted(owner[order], every).astype(np.int64), pick)
        return order[found.rows], found.copy

    graphs, graph_copy = by_workflow(w.stage_workflow[b.subgraph_first])
    own, own_copy = by_workflow(b.external_workflow)
    common = np.flatnonzero(b.external_workflow < 0)
    external = np.concatenate([common, own])

    def moved(values: NDArray[np.int32], shift: Int64) -> NDArray[np.int32]:
        return np.where(values < 0, -1, values + shift).astype(np.int32)

    branch_copy = branches.copy[options.copy]
    return replace(
        b,
        stage_content=b.stage_content[stages.rows],
        stage_fingerprint=b.stage_fingerprint[stages.rows],
        stage_params=b.stage_params[stages.rows],
        stage_flags=b.stage_flags[stages.rows],
        stage_option=moved(b.stage_option[stages.rows], option_shift[stages.copy]),
        read_ptr=reads.ptr,
        read_key=b.read_key[reads.rows],
        write_ptr=writes.ptr,
        write_key=b.write_key[writes.rows],
        external_workflow=np.concatenate([np.full(len(common), -1), own_copy]).astype(np.int32),
        external_time_ns=b.external_time_ns[external],
        external_key=b.external_key[external],
        branch_stage=moved(b.branch_stage[branches.rows], stage_shift[branches.copy]),
        branch_coordinate=b.branch_coordinate[branches.rows],
        branch_open_space=b.branch_open_space[branches.rows],
        branch_exclusive=b.branch_exclusive[branches.rows],
        branch_setup_ns=b.branch_setup_ns[branches.rows],
        branch_nested=moved(b.branch_nested[branches.rows], option_shift[branches.copy]),
        option_ptr=options.ptr,
        option_outcome=b.option_outcome[options.rows],
        option_arguments=b.option_arguments[options.rows],
        option_chosen=b.option_chosen[options.rows],
        option_stage_ptr=paths.ptr,
        option_stage_idx=moved(b.option_stage_idx[paths.rows], stage_shift[branch_copy[paths.copy]]),
        option_score=b.option_score[:, options.rows],
        subgraph_first=moved(b.subgraph_first[graphs], stage_shift[graph_copy]),
        subgraph_last=moved(b.subgraph_last[graphs], stage_shift[graph_copy]),
        subgraph_fingerprint=b.subgraph_fingerprint[graphs],
    )


def rekeyed_branches(w: Workload, original: Int64, turn: Int64) -> Branches:
    """Return the branches of `w` with the private identity of copies changed. Does not mutate.

    original, turn: int64[W], which workflow each is a copy of and in which round; round 0 keeps everything. Private
    is a value that only one original has. Copies of one round then recur among each other as the originals do.
    """
    b = w.branches
    assert b is not None
    owner = w.stage_workflow
    option_owner = owner[b.branch_stage[b.option_branch]]
    keys = [b.read_key, b.write_key, b.external_key]
    sizes = np.cumsum([len(k) for k in keys])[:-1]
    key_owner = np.concatenate(
        [
            np.repeat(owner, np.diff(b.read_ptr)),
            np.repeat(owner, np.diff(b.write_ptr)),
            b.external_workflow,
        ]
    )
    everywhere = np.int64(
        len(original)
    )  # an owner of its own, so that what nobody's write touches stays global

    def rekey(values: NDArray[Any], rows: NDArray[np.int32], purpose: str) -> NDArray[Any]:
        if not len(values):
            return values
        whose = np.append(original, everywhere)[rows]
        _, inverse = np.unique(values, return_inverse=True)
        low = np.full(inverse.max() + 1, everywhere)
        high = np.full(inverse.max() + 1, -1)
        np.minimum.at(low, inverse, whose)
        np.maximum.at(high, inverse, whose)
        round_of = np.append(turn, 0)[rows]
        private = (low == high)[inverse] & (low[inverse] != everywhere) & (round_of > 0)
        fresh = draws.bits_array(0, f"resample/{purpose}", round_of, values.view(np.int64)) >> np.uint64(1)
        return np.where(private, fresh.view(values.dtype), values)

    read, write, external = np.split(rekey(np.concatenate(keys), key_owner, "resource"), sizes)
    outcome = b.option_outcome.copy()
    free = b.branch_open_space[b.option_branch]
    outcome[free] = rekey(outcome[free], option_owner[free], "outcome")
    return replace(
        b,
        stage_content=rekey(b.stage_content, owner, "content"),
        option_arguments=rekey(b.option_arguments, option_owner, "arguments"),
        option_outcome=outcome,
        read_key=read,
        write_key=write,
        external_key=external,
    )
