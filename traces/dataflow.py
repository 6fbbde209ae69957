"""What is known of a workflow's dataflow while it runs."""

from __future__ import annotations

import numpy as np

from traces.rendering import path_of
from traces.schema import Workload


def depths(workload: Workload) -> list[int]:
    """Return for every stage the longest chain of stages that is known to depend on it when it starts.

    What follows a branch is not known before its resolution: a stage on the path of an option counts only for stages on
    the same path.
    """
    out = [0] * workload.n_stages
    path = path_of(workload.branches) if workload.branches is not None else [-1] * workload.n_stages
    ptr, parents = workload.parent_ptr.tolist(), workload.parent_idx.tolist()
    for stage in range(workload.n_stages - 1, -1, -1):  # parents come before their children
        for parent in parents[ptr[stage] : ptr[stage + 1]]:
            if path[stage] in (-1, path[parent]):
                out[parent] = max(out[parent], out[stage] + 1)
    return out


def children_of(workload: Workload) -> tuple[list[int], list[int]]:
    """Return the children of every stage as (ptr, idx) of a CSR, children ascending."""
    child = np.repeat(np.arange(workload.n_stages), np.diff(workload.parent_ptr))
    by_parent = np.argsort(workload.parent_idx, kind="stable")
    counts = np.bincount(workload.parent_idx, minlength=workload.n_stages)
    pointers = np.concatenate([[0], np.cumsum(counts)])
    return pointers.tolist(), child[by_parent].tolist()
