"""Small random worlds with branches, reuse and fills, for tests and the fuzzer: everything from one number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from policies import reuse_names
from policies.api import (
    Admission,
    BranchView,
    Candidate,
    CandidateDrafter,
    FillOption,
    Gate,
    HostInfo,
    LoadView,
    ReuseName,
    ReusePolicy,
    StageView,
)
from policies.branching import BranchingConfig
from policies.registry import PolicySet
from sim.config import DrafterDeviceConfig, EngineConfig, LoadConfig, SimConfig
from sim.worlds import Dice, World, flat_profile
from traces.draws import uniform
from traces.synthetic_branches import Shape, random_branches


@dataclass(frozen=True)
class Eager(Gate[None]):
    """Opens every branch, fills whatever fits; probes, and revokes a fill now and then."""

    revoked: float = 0.0

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def open(self, state: None, branch: BranchView, load: LoadView) -> bool:
        """Open."""
        return True

    def admit(
        self, state: None, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        """Fill all of them."""
        return Admission(rows=tuple(range(len(options))))

    def revokes(self) -> bool:
        """Say whether fills are ever stopped."""
        return self.revoked > 0

    def revoke(self, state: None, running: Sequence[Any], load: LoadView) -> Sequence[int]:
        """Stop some, by a draw keyed by time."""
        return [i for i in range(len(running)) if uniform(i, "revoke", load.now_ns) < self.revoked]

    def probe_period_ns(self) -> int:
        """Look every 50 ms."""
        return 50_000_000


@dataclass(frozen=True)
class Menu(CandidateDrafter[HostInfo]):
    """Proposes what the menu offers, in an order drawn by (workflow, stage)."""

    def new_state(self, host: HostInfo) -> HostInfo:
        """The seed is all it needs."""
        return host

    def propose(self, state: HostInfo, branch: BranchView, limit: int) -> Sequence[Candidate]:
        """Return the first `limit` of the drawn order."""
        rows = sorted(
            range(len(branch.menu)), key=lambda i: state.draw("menu", branch.workflow, branch.stage, i)
        )
        arguments = branch.menu_arguments or (0,) * len(branch.menu)
        picked = [(branch.menu[i], arguments[i]) for i in rows]
        distinct = list(dict.fromkeys(picked))[:limit]
        return [Candidate(o, rank, 0.5, a) for rank, (o, a) in enumerate(distinct)]


@dataclass(frozen=True)
class Everything(ReusePolicy[None]):
    """Names every stage and every part that begins with it."""

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def names(self, state: None, stage: StageView) -> Sequence[ReuseName]:
        """Return the names, outermost first."""
        return [*map(reuse_names.of_scope, stage.scopes), reuse_names.of_stage(stage)]


def branch_world(
    seed: int, workflows: int | None = None, *, policies: PolicySet | None = None, parameters: bool = False
) -> World:
    """Return the world of a seed: random branches, a tight engine, drawn options of the controller.

    parameters: stages run under one of three sets of model parameters.
    """
    dice = Dice(seed, "branch world")
    n = dice.pick(4, 10, 25) if workflows is None else workflows
    shape = Shape(
        length=1 + dice.below(4), depth=1 + dice.below(3), options=1 + dice.below(4), contents=1 + dice.below(3),
        resources=dice.pick(0, 2, 6), writes=dice.pick(0, 250, 700), outside=dice.pick(0, 300, 900),
        repeats=dice.pick(0, 350, 800), several=dice.pick(0, 200, 700),
    )  # fmt: skip
    workload = random_branches(n, seed, shape)
    branches = workload.branches
    assert branches is not None
    if parameters:
        drawn = [dice.below(3) for _ in range(workload.n_stages)]
        params = branches.stage_params + drawn
        workload = replace(workload, branches=replace(branches, stage_params=params.astype("int32")))
    seqs = dice.pick(2, 6, 40)
    config = SimConfig(
        engine=EngineConfig(
            block_tokens=16,
            max_num_seqs=seqs,
            max_num_batched_tokens=dice.pick(64, 512),
            prefix_cache=dice.pick("radix", "block_hash", "none"),
            queue=dice.pick("fcfs", "priority"),
        ),
        load=LoadConfig(loop="open", rate_per_s=float(dice.pick(1, 6, 60))),
        branching=BranchingConfig(
            candidates=1 + dice.below(4), fills_max=dice.pick(1, 4, 20), kv_share=dice.pick(0.1, 0.9),
            demand=dice.pick("join", "race", "drop"), depth=1 + dice.below(3), priority=dice.pick("equal", "low"),
            routing=dice.pick("other", "affine"), readmit=bool(dice.below(2)),
            horizon_ns=dice.pick(1, 400_000_000, 60_000_000_000),
        ),
        drafter_device=DrafterDeviceConfig(place=dice.pick("own", "colocated")),
        replicas=dice.pick(1, 1, 2, 3),
        seed=seed,
    )  # fmt: skip
    if policies is None:
        policies = PolicySet(gate=Eager(revoked=dice.pick(0.0, 0.0, 0.1)), candidate=Menu())
        if dice.below(3):
            policies = replace(policies, reuse=Everything())
    profile = flat_profile(
        5_000_000_000,
        linear_tokens=(1, 64),
        linear_ps=(5 * 10**9, 5 * 10**9 + 37_000_003),
        kv_read_ps_per_token=20_000,
    )
    return World(workload, profile, config, policies, dice.pick(60, 200, 2000))
