"""What the speculation controller is shown of a workload: stages with their rendered inputs, branches, plans of fills.

Nothing here tells what has not happened: options that no drafter can name are left out, and a path is read only when a
candidate names its option.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from policies.branch_events import Choice, FillPlan
from policies.branch_hosting.scopes import Scopes
from policies.reuse_names import hashed
from policies.views import BranchView, Candidate, Scope, StageView
from traces.rendering import Rendering
from traces.schema import StageKind, Workload

Reads = Callable[[tuple[int, ...]], tuple[tuple[int, int], ...]]
Values = Mapping[int, int]
_PREFIX = 0x9E3F1C


@dataclass(frozen=True)
class BranchRow:
    """A branch as the host knows it. `options` are option indices; `offered` of them are shown to policies."""

    index: int
    stage: int
    coordinate: int
    open_space: bool
    exclusive: bool
    setup_ns: int
    options: tuple[int, ...]
    offered: tuple[int, ...]
    choices: tuple[Choice, ...]


class BranchViews:
    """Views of a workload with branches. Read-only once made."""

    def __init__(self, workload: Workload, *, scopes: bool) -> None:
        self.rendering = Rendering(workload)
        b = self.rendering.branches
        self.workflow: list[int] = workload.stage_workflow.tolist()
        self.agent: list[int] = workload.stage_agent.tolist()
        self.kind: list[int] = workload.stage_kind.tolist()
        self._prompt: list[int] = workload.prompt_tokens.tolist()
        self._output: list[int] = workload.output_tokens.tolist()
        self.path = [
            tuple(b.option_stage_idx[p:q].tolist())
            for p, q in zip(b.option_stage_ptr[:-1].tolist(), b.option_stage_ptr[1:].tolist(), strict=True)
        ]
        self.option_branch: list[int] = b.option_branch.tolist()
        self._outcome: list[int] = b.option_outcome.tolist()
        self._arguments: list[int] = b.option_arguments.tolist()
        offered, chosen = b.option_offered.tolist(), b.option_chosen.tolist()
        ptr = b.option_ptr.tolist()
        self.branches: list[BranchRow] = []
        self.at_stage: dict[int, list[int]] = {}
        for i, stage in enumerate(b.branch_stage.tolist()):
            options = tuple(range(ptr[i], ptr[i + 1]))
            self.branches.append(
                BranchRow(
                    i, stage, int(b.branch_coordinate[i]), bool(b.branch_open_space[i]), bool(b.branch_exclusive[i]),
                    int(b.branch_setup_ns[i]), options, tuple(o for o in options if offered[o]),
                    tuple(Choice(self._outcome[o], self._arguments[o]) for o in options if chosen[o]),
                )
            )  # fmt: skip
            self.at_stage.setdefault(stage, []).append(i)
        scores = np.where(np.isnan(b.option_score), -1.0, b.option_score)
        self._scores = {name: scores[k].tolist() for k, name in enumerate(b.drafters)}
        canonical = b.canonical()
        self.canonical: list[bool] = canonical.tolist()
        self._scopes = Scopes(workload, self.rendering) if scopes else None
        # The canonical stage before each one in its workflow, -1 for the first: what "everything so far" means.
        order = np.flatnonzero(canonical)
        before = np.full(workload.n_stages, -1)
        same = workload.stage_workflow[order[1:]] == workload.stage_workflow[order[:-1]]
        before[order[1:]] = np.where(same, order[:-1], -1)
        self._before: list[int] = before.tolist()

    def stage(
        self,
        stage: int,
        rendered: int,
        reads: Reads,
        values: Values,
        prefixes: dict[int, int] | None = None,
        started: Callable[[int], bool] | None = None,
    ) -> StageView:
        """Return the view of a stage that is about to run.

        prefixes: hash of all inputs rendered so far by canonical stage, of its workflow; this stage's is added
        (mutates it). started: says which stages have been demanded; with it, parts that begin here are named.
        """
        r = self.rendering
        prefix = 0
        scopes: tuple[Scope, ...] = ()
        if prefixes is not None:
            before = self._before[stage]
            known = prefixes.get(before, 0) if before >= 0 else 1
            prefix = hashed(_PREFIX, known, rendered) if known else 0
            prefixes[stage] = prefix
        if started is not None and self._scopes is not None:
            scopes = self._scopes.beginning(stage, values, started)
        return StageView(
            self.workflow[stage], stage, self.agent[stage], r.fingerprint[stage], rendered, r.params[stage],
            reads(r.reads[stage]), scopes, prefix, r.speculable[stage],
        )  # fmt: skip

    def covered(self, stage: int, count: int) -> list[int]:
        """Return the first `count` canonical stages of the workflow from `stage` on."""
        out: list[int] = []
        at = stage
        while len(out) < count:
            if self.canonical[at]:
                out.append(at)
            at += 1
        return out

    def branch(self, index: int, opened_ns: int, history: tuple[int, ...]) -> BranchView:
        """Return the view of a branch entry that opens now."""
        row = self.branches[index]
        return BranchView(
            self.workflow[row.stage], row.stage, row.coordinate, self.agent[row.stage], opened_ns, history,
            tuple(self._outcome[o] for o in row.offered),
            tuple(self._arguments[o] for o in row.offered),
            {name: tuple(column[o] for o in row.offered) for name, column in self._scores.items()},
            row.open_space,
        )  # fmt: skip

    def option(self, index: int, candidate: Candidate) -> int:
        """Return the option of a branch that the candidate names, -1 for none: then nobody knows its path."""
        for o in self.branches[index].options:
            if (self._outcome[o], self._arguments[o]) == (candidate.outcome, candidate.arguments):
                return o
        return -1

    def plan(self, index: int, candidate: Candidate, values: Values) -> FillPlan | None:
        """Return what filling the candidate would take, None where nothing of it may run early.

        Of its path, the stages up to the first one that may not run twice or whose input is not known yet.
        """
        option = self.option(index, candidate)
        if option < 0:
            return None
        r = self.rendering
        stages: list[int] = []
        for s in self.path[option]:
            known = all(choice is not None or p in values or p in stages for p, choice in r.inputs[s])
            if not (known and r.speculable[s]):
                break
            stages.append(s)
        if not stages:
            return None
        calls = [s for s in stages if self.kind[s] == StageKind.LLM]
        return FillPlan(
            tuple(stages),
            tuple(r.fingerprint[s] for s in stages),
            max((self._prompt[s] + self._output[s] for s in calls), default=0),
            self._prompt[calls[0]] if calls else 0,
        )
