"""Collect the branches of a workload while `WorkloadBuilder` collects its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.branches import Branches, StageFlag, from_columns
from traces.draws import mix
from traces.errors import InputError, nearest


@dataclass
class _Stage:
    content: int = 0
    fingerprint: int = 0
    params: int = 0
    flags: int = 0
    reads: Sequence[int] = ()
    writes: Sequence[int] = ()


@dataclass
class _Option:
    outcome: int
    arguments: int
    chosen: bool
    stages: Sequence[int]
    scores: Mapping[str, float]


@dataclass
class _Branch:
    stage: int
    coordinate: int
    open_space: bool
    exclusive: bool
    setup_ns: int
    options: list[int] = field(default_factory=list)


class BranchBuilder:
    """Annotates stages and adds branches, options, subgraphs and writes by others. Every method mutates.

    Stages are those of the `WorkloadBuilder` that made it, by index; `WorkloadBuilder.build` checks the result. Where a
    branch is nested, and which stages were not taken, follows from the options.
    """

    def __init__(self, drafters: Sequence[str] = ()) -> None:
        self.drafters = tuple(drafters)
        self._stages: dict[int, _Stage] = {}
        self._branches: list[_Branch] = []
        self._options: list[_Option] = []
        self._writes: list[tuple[int, int, int]] = []
        self._subgraphs: list[tuple[int, int, int]] = []

    def stage(
        self,
        stage: int,
        *,
        fingerprint: int,
        content: int | None = None,
        params: int = 0,
        speculable: bool = False,
        mutating: bool = False,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
    ) -> None:
        """Say what a stage is; content None: like no other. Stages that are not annotated are like no other."""
        flags = StageFlag.SPECULABLE * speculable | StageFlag.MUTATING * mutating
        own = _own(stage) if content is None else content
        self._stages[stage] = _Stage(own, fingerprint, params, int(flags), reads, writes)

    def branch(
        self,
        stage: int,
        *,
        coordinate: int,
        open_space: bool = False,
        exclusive: bool = True,
        setup_ns: int = 0,
    ) -> int:
        """Add a branch that `stage` resolves; return its number, for `option`."""
        self._branches.append(_Branch(stage, coordinate, open_space, exclusive, setup_ns))
        return len(self._branches) - 1

    def option(
        self,
        branch: int,
        *,
        outcome: int,
        arguments: int = 0,
        chosen: bool = False,
        stages: Sequence[int] = (),
        scores: Mapping[str, float] | None = None,
    ) -> None:
        """Add an option of `branch` with the stages of its path; no score: that drafter cannot name it."""
        for name in scores or ():
            if name not in self.drafters:
                raise InputError(nearest(name, self.drafters, what="drafter of the workload"))
        self._branches[branch].options.append(len(self._options))
        self._options.append(_Option(outcome, arguments, chosen, tuple(stages), scores or {}))

    def subgraph(self, first: int, last: int, *, fingerprint: int) -> None:
        """Say that stages first to last (inclusive) are a unit whose result may be named as a whole."""
        self._subgraphs.append((first, last, fingerprint))

    def external_write(self, key: int, time_ns: int, *, workflow: int = -1) -> None:
        """Add a write by others, `time_ns` after the start of `workflow` (-1: of the run)."""
        self._writes.append((workflow, time_ns, key))

    def build(self, n_stages: int) -> Branches:
        """Return the branches of a workload of `n_stages` stages. Does not mutate."""
        for index in self._stages:
            if not 0 <= index < n_stages:
                raise InputError(f"branches: stage {index} was annotated, the workload has {n_stages}")
        stages = [self._stages.get(i) or _Stage(_own(i), _own(i)) for i in range(n_stages)]
        branches = sorted(self._branches, key=lambda b: b.stage)
        options = [self._options[o] for b in branches for o in b.options]
        owner = [i for i, b in enumerate(branches) for _ in b.options]
        path = {s: o for o, option in enumerate(options) for s in option.stages}
        nested = [path.get(b.stage, -1) for b in branches]
        taken: list[bool] = []
        for o, option in enumerate(options):
            outer = nested[owner[o]]
            taken.append(option.chosen and (outer < 0 or (outer < o and taken[outer])))
        not_taken = [o if (o := path.get(i, -1)) >= 0 and not taken[o] else -1 for i in range(n_stages)]
        columns: dict[str, NDArray[Any]] = {
            "stage_content": np.array([s.content for s in stages], dtype=np.uint64),
            "stage_fingerprint": np.array([s.fingerprint for s in stages], dtype=np.uint64),
            "stage_params": np.array([s.params for s in stages], dtype=np.int32),
            "stage_flags": np.array([s.flags for s in stages], dtype=np.uint8),
            "stage_option": np.array(not_taken, dtype=np.int32),
            "read_ptr": _ptr([len(s.reads) for s in stages]),
            "read_key": np.array([k for s in stages for k in s.reads], dtype=np.int64),
            "write_ptr": _ptr([len(s.writes) for s in stages]),
            "write_key": np.array([k for s in stages for k in s.writes], dtype=np.int64),
            "external_workflow": np.array([w for w, _, _ in self._writes], dtype=np.int32),
            "external_time_ns": np.array([t for _, t, _ in self._writes], dtype=np.int64),
            "external_key": np.array([k for _, _, k in self._writes], dtype=np.int64),
            "branch_stage": np.array([b.stage for b in branches], dtype=np.int32),
            "branch_coordinate": np.array([b.coordinate for b in branches], dtype=np.int64),
            "branch_open_space": np.array([b.open_space for b in branches], dtype=bool),
            "branch_exclusive": np.array([b.exclusive for b in branches], dtype=bool),
            "branch_setup_ns": np.array([b.setup_ns for b in branches], dtype=np.int64),
            "branch_nested": np.array(nested, dtype=np.int32),
            "option_ptr": _ptr([len(b.options) for b in branches]),
            "option_outcome": np.array([o.outcome for o in options], dtype=np.int64),
            "option_arguments": np.array([o.arguments for o in options], dtype=np.int64),
            "option_chosen": np.array([o.chosen for o in options], dtype=bool),
            "option_stage_ptr": _ptr([len(o.stages) for o in options]),
            "option_stage_idx": np.array([s for o in options for s in o.stages], dtype=np.int32),
            "option_score": np.array(
                [[o.scores.get(d, np.nan) for o in options] for d in self.drafters], dtype=np.float32
            ),
            "subgraph_first": np.array([f for f, _, _ in self._subgraphs], dtype=np.int32),
            "subgraph_last": np.array([last for _, last, _ in self._subgraphs], dtype=np.int32),
            "subgraph_fingerprint": np.array([f for _, _, f in self._subgraphs], dtype=np.uint64),
        }
        return from_columns(columns, self.drafters)


def _own(stage: int) -> int:
    return mix(stage ^ 0x5F0A6E1B3C2D4E77)


def _ptr(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
