"""Branches of a workload: decisions whose outcome picks the next stages, and what each outcome would have run.

A branch is resolved when its `branch_stage` ends; its window is the run of that stage. Every option names the path
of stages that it leads to: canonical stages for the option that was taken, stages of its own for one that was not, so
that the trace says what a mispredicted early execution would have cost. Identity is numbers: of a stage's template
(fingerprint), of what its own prompt says (content), of its parameters, of the resources it reads and writes.

What a stage's input renders to is known at run time only (`traces.rendering`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from traces.branch_errors import branch_errors
from traces.prefix import Int32, Int64

if TYPE_CHECKING:
    from traces.schema import Workload

UInt64 = NDArray[np.uint64]
Bool = NDArray[np.bool_]


class StageFlag(IntFlag):
    """What a stage's template declares. A stage without SPECULABLE is never filled and never reused.

    SPECULABLE   safe to run twice and determined by its input, parameters and reads
    MUTATING     writes resources of its write-set when it ends; runs on the canonical path only
    """

    SPECULABLE = 1
    MUTATING = 2


@dataclass(frozen=True)
class Branches:
    """Struct of arrays. S stages of the workload, B branches, O options, K kinds of drafter.

    stage_content      uint64[S]: identity of the stage's own rendered text (question, entity, template slots)
    stage_fingerprint  uint64[S]: identity of its template
    stage_params       int32[S]: model and execution parameters
    stage_flags        uint8[S]: StageFlag
    stage_option       int32[S]: -1 for a canonical stage; else the option whose path it belongs to, which was not taken
                       (itself, or one that its branch is nested in): it never runs but in a fill
    read_ptr/read_key    CSR, int64[S+1] and int64: resources that a stage reads when it starts
    write_ptr/write_key  CSR: resources that a MUTATING stage writes when it ends
    external_workflow, external_time_ns, external_key   writes by others: at a time after the start of a workflow, or
                       (-1) after the start of the run
    branch_stage       int32[B], ascending: the stage whose end resolves the branch
    branch_coordinate  int64[B]: stable place of the decision in the template
    branch_open_space  bool[B]: candidates come from an open vocabulary
    branch_exclusive   bool[B]: one option wins; else any number of them is valid
    branch_setup_ns    int64[B]: time to draft candidates
    branch_nested      int32[B]: the option whose path holds `branch_stage`, -1 for none
    option_ptr         int64[B+1]: options of branch b are option_ptr[b]:option_ptr[b+1], in the template's order
    option_outcome     int64[O]: the choice
    option_arguments   int64[O]: its arguments; one outcome may have several rows
    option_chosen      bool[O]: taken in the recorded run
    option_stage_ptr/option_stage_idx  CSR: the path, ascending; after a nested branch its options go on
    drafters           names of the kinds of drafter whose scores were computed where the text is
    option_score       float32[K, O]: score of kind k, NaN where it cannot name the option. An option that no kind
                       can name is not offered to policies (with K = 0 all are)
    subgraph_first, subgraph_last   int32[G]: nested stage ranges, inclusive
    subgraph_fingerprint            uint64[G]
    """

    stage_content: UInt64
    stage_fingerprint: UInt64
    stage_params: Int32
    stage_flags: NDArray[np.uint8]
    stage_option: Int32
    read_ptr: Int64
    read_key: Int64
    write_ptr: Int64
    write_key: Int64
    external_workflow: Int32
    external_time_ns: Int64
    external_key: Int64
    branch_stage: Int32
    branch_coordinate: Int64
    branch_open_space: Bool
    branch_exclusive: Bool
    branch_setup_ns: Int64
    branch_nested: Int32
    option_ptr: Int64
    option_outcome: Int64
    option_arguments: Int64
    option_chosen: Bool
    option_stage_ptr: Int64
    option_stage_idx: Int32
    drafters: tuple[str, ...]
    option_score: NDArray[np.float32]
    subgraph_first: Int32
    subgraph_last: Int32
    subgraph_fingerprint: UInt64

    @property
    def n_branches(self) -> int:
        """Number of branches."""
        return len(self.branch_stage)

    @property
    def n_options(self) -> int:
        """Number of options."""
        return len(self.option_outcome)

    @property
    def option_branch(self) -> Int32:
        """Return int32[O]: the branch of each option."""
        return np.repeat(np.arange(self.n_branches, dtype=np.int32), np.diff(self.option_ptr))

    @property
    def option_offered(self) -> Bool:
        """Return bool[O]: options that some drafter could name, the only ones a policy may see."""
        if not self.drafters:
            return np.ones(self.n_options, dtype=bool)
        offered: Bool = np.any(np.isfinite(self.option_score), axis=0)
        return offered

    @property
    def option_taken(self) -> Bool:
        """Return bool[O]: chosen, and so is every option that its branch is nested in."""
        outer = np.append(self.branch_nested, np.int32(-1))[self.option_branch]  # -1 at the top
        taken: Bool = np.append(self.option_chosen, True)
        while True:
            closer: Bool = taken & np.append(taken[outer], True)
            if np.array_equal(closer, taken):
                return closer[:-1]
            taken = closer

    def canonical(self) -> Bool:
        """Return bool[S]: stages of the recorded run."""
        canonical: Bool = self.stage_option < 0
        return canonical

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return every column by name, one-dimensional."""
        return {name: np.ravel(getattr(self, name)) for name in DTYPES}

    def errors(self, workload: Workload) -> list[str]:
        """Return what breaks the schema, one line each; empty when the branches are sound. Does not mutate."""
        return branch_errors(self, workload)


DTYPES: dict[str, type[np.generic]] = {
    "stage_content": np.uint64,
    "stage_fingerprint": np.uint64,
    "stage_params": np.int32,
    "stage_flags": np.uint8,
    "stage_option": np.int32,
    "read_ptr": np.int64,
    "read_key": np.int64,
    "write_ptr": np.int64,
    "write_key": np.int64,
    "external_workflow": np.int32,
    "external_time_ns": np.int64,
    "external_key": np.int64,
    "branch_stage": np.int32,
    "branch_coordinate": np.int64,
    "branch_open_space": np.bool_,
    "branch_exclusive": np.bool_,
    "branch_setup_ns": np.int64,
    "branch_nested": np.int32,
    "option_ptr": np.int64,
    "option_outcome": np.int64,
    "option_arguments": np.int64,
    "option_chosen": np.bool_,
    "option_stage_ptr": np.int64,
    "option_stage_idx": np.int32,
    "option_score": np.float32,
    "subgraph_first": np.int32,
    "subgraph_last": np.int32,
    "subgraph_fingerprint": np.uint64,
}


def from_columns(columns: dict[str, NDArray[Any]], drafters: tuple[str, ...]) -> Branches:
    """Return the branches of flat columns, as `columns` gives them; ValueError where the scores do not fit."""
    given = {name: np.asarray(columns[name]).astype(kind) for name, kind in DTYPES.items()}
    given["option_score"] = given["option_score"].reshape(len(drafters), len(given["option_outcome"]))
    return Branches(drafters=drafters, **given)
