"""How much of a workload's time early execution could hide, on an idle engine with nominal costs.

Each LLM call takes prefill of the prompt tokens that no earlier call of its workflow held, and a step a token.
Nothing is measured here: it is a bound from the trace, stated with the costs that it was made with.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from traces.branches import Branches, StageFlag
from traces.reuse import prefix_reuse
from traces.schema import StageKind, Workload

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Nominal:
    """Costs of one LLM call alone on an engine.

    The defaults are datasheet arithmetic for a 32.8 B model in bf16 on one H200: 65.5 GB read at 4.8 TB/s a step; 2
    x 32.8e9 operations a prompt token at half of 989 TFLOP/s.
    """

    decode_ns_per_token: int = 13_650_000
    prefill_ns_per_token: int = 132_700


@dataclass(frozen=True)
class Overlap:
    """Shares of the time of all workflows, recorded run on an idle engine.

    window      sum over branches on the critical path of min(window, work that waits for it): DynBranch's overlap
                share. The window is the deciding stage less drafting, the work the taken path up to the next decision
    bound       what is saved when every taken path starts as soon as its branch's window opens, one cycle ahead;
                the path includes the stage that decides next, so that it may exceed `window`
    downstream  time on the critical path in stages that wait for a decision of their own workflow, but decide nothing
    wall_ms     mean time of a workflow
    """

    window: float
    bound: float
    downstream: float
    wall_ms: float


def durations_ns(workload: Workload, cost: Nominal) -> Int64:
    """Return int64[S]: what every stage takes alone, those of options that were not taken, too. Does not mutate."""
    reuse = prefix_reuse(workload)
    fresh = workload.prompt_tokens.astype(np.int64)
    fresh[reuse.stage] -= reuse.own_hit_tokens
    llm = workload.stage_kind == StageKind.LLM
    calls = (
        fresh * cost.prefill_ns_per_token + workload.output_tokens.astype(np.int64) * cost.decode_ns_per_token
    )
    return np.where(llm, calls, workload.stage_duration_ns).astype(np.int64)


def overlap(workload: Workload, cost: Nominal | None = None) -> Overlap:
    """Return the shares. Waits count as windows and not as work or time: what a user waits for is what is measured."""
    b = workload.branches
    assert b is not None
    took = durations_ns(workload, cost or Nominal())
    run = _Run(workload, b, took)
    plain, early = run.finish(early=False), run.finish(early=True)
    canonical = workload.canonical()
    waits = np.where(workload.stage_kind == StageKind.WAIT, took, 0)
    wall = hidden = window = downstream = 0
    deciding = np.zeros(workload.n_stages, dtype=bool)
    deciding[b.branch_stage] = True
    on_path = np.zeros(workload.n_stages, dtype=bool)
    on_path[b.option_stage_idx] = True
    first = np.searchsorted(workload.stage_workflow, np.arange(workload.n_workflows + 1))
    for w in range(workload.n_workflows):
        stages = [s for s in range(int(first[w]), int(first[w + 1])) if canonical[s]]
        chain = run.critical(plain, stages)
        idle = int(sum(waits[s] for s in chain))
        wall += int(plain[stages].max()) - idle
        hidden += int(plain[stages].max()) - int(early[stages].max())
        downstream += int(sum(took[s] for s in chain if on_path[s] and not deciding[s]))
        window += sum(run.hideable(s, set(chain)) for s in chain if deciding[s])
    if wall == 0:
        return Overlap(0.0, 0.0, 0.0, 0.0)
    return Overlap(
        round(window / wall, 4), round(hidden / wall, 4), round(downstream / wall, 4),
        round(wall / workload.n_workflows / 1e6, 3),
    )  # fmt: skip


class _Run:
    """The recorded run as a graph. Read-only once made."""

    def __init__(self, workload: Workload, b: Branches, took: Int64) -> None:
        self._took: list[int] = took.tolist()
        ptr, parents = workload.parent_ptr.tolist(), workload.parent_idx.tolist()
        self._parents = [parents[a:e] for a, e in pairwise(ptr)]
        self._canonical = workload.canonical().tolist()
        self._decides: dict[int, int] = {}  # stage -> branch
        self._by: dict[int, int] = {}  # stage that may run early -> the stage that decides for it
        self._setup: list[int] = b.branch_setup_ns.tolist()
        self._work: dict[int, list[int]] = {}
        ends = set(b.branch_stage.tolist())
        self._nested = ends
        speculable = ((b.stage_flags & StageFlag.SPECULABLE) != 0).tolist()
        taken = b.option_taken.tolist()
        for o, branch in enumerate(b.option_branch.tolist()):
            stage = int(b.branch_stage[branch])
            self._decides[stage] = branch
            if taken[o]:
                for s in b.option_stage_idx[b.option_stage_ptr[o] : b.option_stage_ptr[o + 1]].tolist():
                    if not speculable[s]:
                        break
                    self._by[s] = stage
                    self._work.setdefault(stage, []).append(s)

    def finish(self, *, early: bool) -> Int64:
        """Return int64[S]: when each canonical stage's result may be used, from the start of its workflow."""
        start = [0] * len(self._took)
        end = [0] * len(self._took)
        usable = [0] * len(self._took)
        for s, alive in enumerate(self._canonical):
            if not alive:
                continue
            by = self._by.get(s, -1) if early else -1
            ready = max((usable[p] for p in self._parents[s]), default=0)
            if by >= 0:
                # Inputs on the same path need not be usable, only finished. What has not begun when it is demanded runs
                # as it would have.
                given = [
                    end[p] if self._by.get(p, -1) == by else usable[p] for p in self._parents[s] if p != by
                ]
                ready = min(ready, max(start[by] + self._setup[self._decides[by]], *given, 0))
            start[s], end[s] = ready, ready + self._took[s]
            usable[s] = end[s]
            if by >= 0:
                usable[s] = max(end[s], usable[by])
                start[s] = max(
                    start[s], usable[by]
                )  # one cycle ahead: its own window opens when it is demanded
        return np.array(usable, dtype=np.int64)

    def critical(self, finish: Int64, stages: list[int]) -> list[int]:
        """Return the chain of stages that ends last, first stage first."""
        at = max(stages, key=lambda s: (int(finish[s]), s))
        chain = [at]
        while self._parents[at]:
            at = max(self._parents[at], key=lambda p: (int(finish[p]), p))
            chain.append(at)
        return chain[::-1]

    def hideable(self, stage: int, chain: set[int]) -> int:
        """Return min(window, work) of the branch that `stage` decides; work: of its path on the critical chain."""
        window = self._took[stage] - self._setup[self._decides[stage]]
        work = sum(self._took[s] for s in self._work.get(stage, ()) if s in chain and s not in self._nested)
        return max(0, min(window, work))
