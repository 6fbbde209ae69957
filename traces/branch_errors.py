"""What is wrong with the branches of a workload, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from traces.branches import Branches
    from traces.schema import Workload

_SPECULABLE, _MUTATING = 1, 2


def branch_errors(b: Branches, w: Workload) -> list[str]:
    """Return the lines; empty when the branches fit the workload."""
    return _columns(b, w) or _rows(b, w) or _paths(b, w)


def _columns(b: Branches, w: Workload) -> list[str]:
    s, n, o = w.n_stages, b.n_branches, b.n_options
    out = []
    for prefix, size in (("stage_", s), ("branch_", n), ("option_", o)):
        for name, column in vars(b).items():
            if name.startswith(prefix) and name not in (
                "option_ptr", "option_stage_ptr", "option_stage_idx", "option_score",
            ) and len(column) != size:  # fmt: skip
                out.append(f"column {name!r} has {len(column)} rows, expected {size}")
    for ptr, rows, total in (
        ("read_ptr", s, len(b.read_key)), ("write_ptr", s, len(b.write_key)), ("option_ptr", n, o),
        ("option_stage_ptr", o, len(b.option_stage_idx)),
    ):  # fmt: skip
        column = getattr(b, ptr)
        if len(column) != rows + 1 or column[0] != 0 or column[-1] != total or np.any(np.diff(column) < 0):
            out.append(f"column {ptr!r} does not index its rows")
    if b.option_score.shape != (len(b.drafters), o):
        out.append("column 'option_score' must have one row a drafter and one column an option")
    elif np.any(np.isinf(b.option_score)):
        out.append("column 'option_score': scores must be finite, or NaN where there is none")
    for group in (("external_workflow", "external_time_ns", "external_key"),
                  ("subgraph_first", "subgraph_last", "subgraph_fingerprint")):  # fmt: skip
        if len({len(getattr(b, name)) for name in group}) > 1:
            out.append(f"columns {', '.join(group)} must have the same length")
    return out


def _rows(b: Branches, w: Workload) -> list[str]:
    s, o = w.n_stages, b.n_options
    out = []
    both = _SPECULABLE | _MUTATING
    chosen = np.add.reduceat(np.append(b.option_chosen, False).astype(np.int64), b.option_ptr[:-1])
    chosen[np.diff(b.option_ptr) == 0] = 0
    for what, bad, text in (
        ("stage", (b.stage_option < -1) | (b.stage_option >= o), "field 'stage_option' out of range"),
        ("stage", b.stage_flags > both, "field 'stage_flags' has an unknown flag"),
        ("stage", (b.stage_flags & both) == both, "a stage cannot be speculable and mutating"),
        (
            "stage", (np.diff(b.write_ptr) > 0) & ((b.stage_flags & _MUTATING) == 0),
            "only a mutating stage has a write-set",
        ),
        ("branch", (b.branch_stage < 0) | (b.branch_stage >= s), "field 'branch_stage' out of range"),
        ("branch", np.diff(b.branch_stage, prepend=-1) < 0, "field 'branch_stage' must be ascending"),
        ("branch", b.branch_setup_ns < 0, "field 'branch_setup_ns' must not be negative"),
        ("branch", (b.branch_nested < -1) | (b.branch_nested >= o), "field 'branch_nested' out of range"),
        ("branch", b.branch_exclusive & (chosen > 1), "an exclusive branch has one chosen option at most"),
        (
            "external write",
            (b.external_workflow < -1) | (b.external_workflow >= w.n_workflows),
            "field 'external_workflow' out of range",
        ),
        ("external write", b.external_time_ns < 0, "field 'external_time_ns' must not be negative"),
        (
            "subgraph", (b.subgraph_first < 0) | (b.subgraph_last >= s) | (b.subgraph_first > b.subgraph_last),
            "its range of stages is empty or out of range",
        ),
    ):  # fmt: skip
        if np.any(bad):
            out.append(f"{what} {int(np.flatnonzero(bad)[0])}: {text}")
    if not out and len(b.subgraph_first):
        out += _nesting(b, w)
    return out


def _nesting(b: Branches, w: Workload) -> list[str]:
    owner = w.stage_workflow
    if np.any(owner[b.subgraph_first] != owner[b.subgraph_last]):
        return ["a subgraph must stay within a workflow"]
    open_until: list[int] = []
    for i in np.lexsort((-b.subgraph_last, b.subgraph_first)).tolist():
        first, last = int(b.subgraph_first[i]), int(b.subgraph_last[i])
        while open_until and open_until[-1] < first:
            open_until.pop()
        if open_until and last > open_until[-1]:
            return [f"subgraph {i}: overlaps another without being inside it"]
        open_until.append(last)
    return []


def _paths(b: Branches, w: Workload) -> list[str]:
    """Check that paths, options and the graph tell the same story."""
    path = np.repeat(np.arange(b.n_options), np.diff(b.option_stage_ptr))
    stage = b.option_stage_idx
    branch = b.option_branch
    if len(stage) and (stage.min() < 0 or stage.max() >= w.n_stages):
        return ["column 'option_stage_idx' out of range"]
    decided: NDArray[np.int32] = b.branch_stage[branch[path]]
    same = path[1:] == path[:-1]
    placed = np.full(w.n_stages, -1)
    placed[stage] = path
    child = np.repeat(np.arange(w.n_stages), np.diff(w.parent_ptr))
    parent_option, child_option = b.stage_option[w.parent_idx], b.stage_option[child]
    foreign = (parent_option >= 0) & (parent_option != child_option)
    foreign[foreign] = ~_above(b, parent_option[foreign], child_option[foreign])
    outer = np.append(branch, -1)[b.branch_nested]
    if np.any(outer >= np.arange(b.n_branches)):
        return ["field 'branch_nested' must be an option of an earlier branch"]
    want = np.where(b.option_taken[path], -1, path)
    for what, at, bad, text in (
        ("option", path, w.stage_workflow[stage] != w.stage_workflow[decided], "its path leaves the workflow"),
        ("option", path, stage <= decided, "its path begins before its branch is decided"),
        ("option", path[1:], same & (np.diff(stage) <= 0), "its path must be ascending"),
        ("option", path, placed[stage] != path, "a stage of its path is in another path, too"),
        ("option", path, b.stage_option[stage] != want, "'stage_option' of its path says otherwise"),
        ("stage", np.arange(w.n_stages), (b.stage_option >= 0) & (placed < 0), "is in no option's path"),
        ("stage", child, foreign, "depends on a stage that was not taken"),
        (
            "branch", np.arange(b.n_branches),
            placed[b.branch_stage] != b.branch_nested,
            "'branch_nested' is not the option whose path holds its stage",
        ),
    ):  # fmt: skip
        if np.any(bad):
            return [f"{what} {int(at[np.flatnonzero(bad)[0]])}: {text}"]
    return []


def _above(b: Branches, upper: NDArray[np.int32], lower: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Say where option `upper` encloses option `lower` (through nested branches)."""
    branch = b.option_branch
    at = lower.astype(np.int64)
    found = np.zeros(len(upper), dtype=bool)
    for _ in range(b.n_branches + 1):
        live = at >= 0
        if not live.any():
            break
        at = np.where(live, b.branch_nested[branch[np.maximum(at, 0)]], -1)
        found |= at == upper
    return found
