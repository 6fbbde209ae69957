"""What goes into the speculation controller and what comes out of it: typed events, typed commands.

The controller (`policies/branching.py`) does no IO and reads no clock: a host tells it what happened, in the order in
which it happened, and carries out the commands it gets back, in their order. Everything that a decision depends on
is in the events, so a recorded sequence replayed into a fresh controller gives the same commands in either host.

Life of a branch: Opened > Draft > Drafted > Plan > Planned > Launch. Life of a fill: Launch > FillStarted (the input of
one stage is rendered) > RunFill or SkipFill > FillStageDone > Advance > FillStarted ... Canonical flow: every released
stage is Demanded, and gets exactly one of Serve, Promote, Join, Race, Miss; a Join ends later in Promote or Miss, and a
Race in Promote (stop the canonical execution) or in nothing (it was faster). All times are ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from policies.views import BranchOutcome, BranchView, Candidate, ReuseName, StageView


@dataclass(frozen=True, slots=True)
class HostLoad:
    """Canonical demand as the host sees it; fills and their KV are the controller's own ledger.

    canonical_load   share of the engines' capacity that canonical work takes, in [0, 1]: rho_t of section 3.4
    canonical_seqs   canonical requests running or waiting, over all replicas
    """

    canonical_load: float
    canonical_seqs: int = 0


@dataclass(frozen=True, slots=True)
class FillPlan:
    """What filling a candidate would take, as far as it is known before it runs.

    stages          stages of its path that may run early, in topological order: up to the first one that is not
                    speculable, or to the next branch. Numbers mean something to the host only
    keys            template (fingerprint) of each stage: what time estimates are learned under
    kv_tokens       KV to reserve while it runs: prompt and the largest output of its largest stage
    prompt_tokens   prompt of its first LLM stage, 0 for tools
    cached_tokens   of these, resident where the fill would run now: they are not prefilled again
    """

    stages: tuple[int, ...]
    keys: tuple[int, ...]
    kv_tokens: int
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """A real outcome: the choice and the arguments it was made with. Promotion needs both."""

    outcome: int
    arguments: int = 0


# --- events ---


@dataclass(frozen=True, slots=True)
class Opened:
    """A resolution window opens: the deciding stage started. `entry` is the host's number for it, never reused.

    exclusive     one outcome wins and the others' work must die; False: several results stay valid
    parent_fill   the fill inside which the deciding stage runs, -1 in canonical flow
    """

    time_ns: int
    entry: int
    branch: BranchView
    load: HostLoad
    exclusive: bool = True
    parent_fill: int = -1


@dataclass(frozen=True, slots=True)
class Drafted:
    """Drafting that `Draft` asked for is done. `setup_ns` is what it took, whoever took it.

    branch   the view to rank candidates with, where drafting added to it (a draft LM's scores); None: as opened
    """

    time_ns: int
    entry: int
    setup_ns: int
    branch: BranchView | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """Answer to `Plan`: one plan a candidate, None where nothing of it may run early."""

    time_ns: int
    entry: int
    plans: tuple[FillPlan | None, ...]
    load: HostLoad


@dataclass(frozen=True, slots=True)
class FillStarted:
    """The input of the fill's stage at `position` is rendered and its resources are about to be read.

    `view.read_set` are the keys and the versions it reads; the name follows from the view.
    """

    time_ns: int
    fill: int
    position: int
    view: StageView


@dataclass(frozen=True, slots=True)
class FillStageDone:
    """The fill's stage at `position` has its result (an opaque value). `engine_ns`: residence in an engine."""

    time_ns: int
    fill: int
    position: int
    value: int
    engine_ns: int = 0


@dataclass(frozen=True, slots=True)
class FillFailed:
    """The fill died (its engine, its request); nothing of its stage at work exists."""

    time_ns: int
    fill: int
    reason: str = ""
    engine_ns: int = 0


@dataclass(frozen=True, slots=True)
class Resolved:
    """The branch's real outcome is known; several choices only where the branch is not exclusive."""

    time_ns: int
    entry: int
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Demanded:
    """Canonical flow releases a stage: may something serve it?

    entry   the branch whose choice released it, -1 when none did: without reuse, only its own fills may serve it
    """

    time_ns: int
    view: StageView
    entry: int = -1


@dataclass(frozen=True, slots=True)
class CanonicalDone:
    """A canonical execution ended well; `view` as demanded, but with the read-set's versions as it read them."""

    time_ns: int
    view: StageView
    value: int
    exec_ns: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """A resource has a new version: by a mutating stage of a workflow, or from outside."""

    time_ns: int
    key: int
    version: int


@dataclass(frozen=True, slots=True)
class Probed:
    """Periodic sample of the load, also while nothing is open."""

    time_ns: int
    load: HostLoad


@dataclass(frozen=True, slots=True)
class Ticked:
    """The time that `Controller.next_deadline_ns` named has come."""

    time_ns: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The workflow ended, well or badly: nothing of it will be demanded again."""

    time_ns: int
    workflow: int


Event: TypeAlias = (
    Opened | Drafted | Planned | FillStarted | FillStageDone | FillFailed | Resolved | Demanded | CanonicalDone
    | Written | Probed | Ticked | Closed
)  # fmt: skip

# --- commands ---


@dataclass(frozen=True, slots=True)
class Draft:
    """Run the candidate drafter; `cost_ns` is what the policy says it takes, None: what the trace says."""

    entry: int
    limit: int
    cost_ns: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Say what filling each of these would take (`Planned`)."""

    entry: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """Begin the fill: render the first stage of its plan and say `FillStarted(position=0)`.

    priority   "equal" (to canonical requests, not preemptible) or "low"
    routing    "other" worker than the workflow's own, or "affine" to its prefix
    """

    entry: int
    fill: int
    candidate: Candidate
    plan: FillPlan
    priority: str = "equal"
    routing: str = "other"


@dataclass(frozen=True, slots=True)
class RunFill:
    """Execute the fill's stage at `position` now (`FillStageDone`, `FillFailed`)."""

    fill: int
    position: int


@dataclass(frozen=True, slots=True)
class SkipFill:
    """The fill's stage at `position` has this result already; say so with `FillStageDone`, engine_ns 0."""

    fill: int
    position: int
    value: int


@dataclass(frozen=True, slots=True)
class Advance:
    """Render the fill's next stage (`FillStarted`)."""

    fill: int
    position: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop the fill at once, free what it holds; say nothing back. Its results do not exist.

    reason   unselected, wrong argument, late, stale, served, revoked, closed, parent, failed, unspeculable
    """

    fill: int
    reason: str


@dataclass(frozen=True, slots=True)
class Serve:
    """Finished work serves `stages` stages from the demanded one on; `values`, one a stage, are their results.

    Values is empty where the policy promises a result made before the run: the host holds it.
    """

    workflow: int
    stage: int
    values: tuple[int, ...]
    name: ReuseName
    rank: int


@dataclass(frozen=True, slots=True)
class Promote:
    """The fill's result becomes the demanded stage's; a canonical execution of it that races is stopped."""

    workflow: int
    stage: int
    fill: int
    position: int
    value: int


@dataclass(frozen=True, slots=True)
class Join:
    """Hold the stage: a fill is producing its result."""

    workflow: int
    stage: int
    fill: int


@dataclass(frozen=True, slots=True)
class Race:
    """Execute the stage although a fill is producing its result; the first one wins."""

    workflow: int
    stage: int
    fill: int


@dataclass(frozen=True, slots=True)
class Miss:
    """Execute the stage."""

    workflow: int
    stage: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """The deciding stage of this nested entry was promoted: the entry belongs to canonical flow now."""

    entry: int
    workflow: int
    stage: int


@dataclass(frozen=True, slots=True)
class Settle:
    """The branch settled: write its row. The gate has been told."""

    entry: int
    outcome: BranchOutcome


Command: TypeAlias = (
    Draft | Plan | Launch | RunFill | SkipFill | Advance | Cancel | Serve | Promote | Join | Race | Miss | Adopt
    | Settle
)  # fmt: skip
