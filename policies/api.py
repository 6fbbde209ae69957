"""The contract: one base class per policy family.

A policy is a frozen dataclass of its parameters; the fields are its command-line options. What it learns or orders
lives in a state object that `new_state` returns, that the host holds and passes back, and that the methods marked
"mutates state" change; they change nothing else. A policy that needs truth says `needs = {"oracle"}` (or
"output_length", for `RequestView.output_length_tokens`), and a host without it refuses at start. Deterministic: no
clock, no random module; draws come from `HostInfo.draw`.

Families share no state, in either host: in vLLM the evictor lives in the engine-core process and the drafter in
the worker. Base classes rather than bare protocols, so that events a policy does not care about need no code and a
new event breaks nobody.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from policies.costs import Profile
from policies.views import (
    Access,
    Admission,
    BatchShape,
    BatchView,
    BranchOracle,
    BranchOutcome,
    BranchView,
    CacheNode,
    Candidate,
    Draft,
    FillOption,
    FillOutcome,
    Forecast,
    GraphChoice,
    HostInfo,
    HostNode,
    LoadView,
    Proposals,
    ReplicaView,
    RequestView,
    ReuseName,
    RunningFill,
    Scope,
    Slowdown,
    StageView,
    WorkflowView,
)

S = TypeVar("S")


@dataclass(frozen=True)
class Policy(ABC, Generic[S]):
    """What every policy has. `label` is shown in tables; `needs` lists what only some hosts can give."""

    family: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    label: ClassVar[str] = ""
    source: ClassVar[str] = ""

    def files(self) -> tuple[Path, ...]:
        """Return the files that options name: their content, not their place, is part of a run's identity."""
        return ()

    @abstractmethod
    def new_state(self, host: HostInfo) -> S:
        """Return a fresh state for one replica (routers, gates, reuse, predictors: one for the whole run)."""


@dataclass(frozen=True)
class Evictor(Policy[S]):
    """Chooses which cache nodes leave HBM.

    A node is evictable when no running request holds it and no child of it is resident: the host says so with
    `release`, and takes it back with `pin`. Requests touch the deepest node of their path only (`hit`); all its
    ancestors were read too, which a policy that counts can pass on when a child is removed (`remove`), since only
    leaves are ever victims. `next_victim` must name an evictable node, and with equal histories the same one.
    The host then removes it, or shrinks it when less is needed.

    Order of events of one request: pin, hit, the removals its blocks need, insert (as its tokens are scheduled or
    computed); then done, the releases that follow, and workflow_finished after those of the workflow's last
    request. Where two events have the same time, their order decides, not ids.
    """

    family: ClassVar[str] = "evictors"

    def insert(self, state: S, node: CacheNode, access: Access) -> None:
        """`node` became resident (not evictable yet). Mutates state."""

    def hit(self, state: S, node: CacheNode, access: Access) -> None:
        """A request matched the prefix that ends with `node`. Mutates state."""

    def done(self, state: S, node: CacheNode, now_ns: int) -> None:
        """A request that held the path ending with `node` ended or was preempted.

        Comes before the releases it causes, and also when other requests still hold the path. Mutates state.
        """

    @abstractmethod
    def release(self, state: S, node: CacheNode, now_ns: int) -> None:
        """`node` is evictable from now on. Mutates state."""

    @abstractmethod
    def pin(self, state: S, node: CacheNode) -> None:
        """`node` is not evictable any more (it stays resident). Mutates state."""

    def split(self, state: S, upper: CacheNode, lower: CacheNode) -> None:
        """`lower`, known already, gave its leading tokens to the new node `upper`, now its parent.

        `lower` keeps its id and its evictability; `upper` is not evictable. Mutates state.
        """

    def shrink(self, state: S, node: CacheNode) -> None:
        """`node`, evictable, lost blocks from its tail and keeps its place; `node.tokens` is new. Mutates state."""

    def remove(self, state: S, node: CacheNode) -> None:
        """`node` left HBM; it was evictable. Its parent, if any, may get a `release` next. Mutates state."""

    def restore(self, state: S, node: CacheNode, readers: Sequence[Access]) -> None:
        """`node`, just inserted, came back from the host tier; these had read its content before. No use.

        One `Access` for each (workflow, agent), active workflows only, in the order of their first reads; sent by
        hosts that know. Mutates state.
        """

    def retired(self, state: S, node: CacheNode) -> bool:
        """Say whether `node`, evictable, has no value left whatever comes: a prefetch may take its space.

        Must hold for no node that `next_victim` names after one for which it does not. Does not mutate state.
        """
        return False

    def workflow_finished(self, state: S, workflow: int, now_ns: int) -> None:
        """No further request of `workflow` will come. Mutates state."""

    def forecast(self, state: S, forecast: Forecast) -> None:
        """A predictor's new forecast for one workflow. Mutates state."""

    @abstractmethod
    def next_victim(self, state: S, now_ns: int) -> CacheNode | None:
        """Return the evictable node to remove next, None when there is none. May mutate state (hands, heaps)."""

    def next_deadline(self, state: S) -> int | None:
        """Return the time (ns) at which the order changes without an event (a TTL), None when it never does.

        A host may fast-forward evictions up to it. Does not mutate state.
        """
        return None


@dataclass(frozen=True)
class Prefetcher(Policy[S]):
    """Chooses which host-resident nodes come back to HBM before they are asked for.

    The host asks when a batch without prefill is about to run, and only while there may be room: it tells who has read
    each candidate (`HostNode.readers`), counts free space and space of retired nodes (`Evictor.retired`), and bounds
    the volume by what the link carries in a step. It takes retired nodes, then active ones up to
    `displaceable_tokens`, in the evictor's order.

    A host either lists all candidates at each call (`choose`), or says what changes (`offer`, `withdraw`) and calls
    `choose_offered`, whose cost need not grow with the candidates. Both must make the same choice.
    """

    family: ClassVar[str] = "prefetchers"

    def forecast(self, state: S, forecast: Forecast) -> None:
        """A predictor's new forecast for one workflow. Mutates state."""

    def workflow_finished(self, state: S, workflow: int, now_ns: int) -> None:
        """No further request of `workflow` will come. Mutates state."""

    def active(self) -> bool:
        """Say whether `choose` can ever return anything; a host skips the work when it cannot."""
        return True

    def displaceable_tokens(self, state: S, outstanding_tokens: int) -> int:
        """Return the tokens of active cache that this call may displace; does not mutate state.

        outstanding_tokens: HBM that holds what was prefetched and neither used nor evicted yet.
        """
        return 0

    def offer(self, state: S, node: HostNode, order: Any) -> None:
        """`node` is a candidate from now on, or its tokens, readers, parent or place changed.

        order: its place among the candidates, any totally ordered value, no two alike: where a list would have it. A
        parent that is a candidate is offered before its children, and its children again after it. Mutates state.
        """

    def withdraw(self, state: S, id: int) -> None:
        """The node of this id is no candidate any more. Mutates state."""

    def choose_offered(self, state: S, budget_tokens: int, shape: BatchShape) -> list[HostNode] | None:
        """Return what `choose` would of the nodes offered and not withdrawn; None (the default): ask `choose`.

        One thing differs: a node that hangs on no candidate and is longer than `budget_tokens` stands for its leading
        part of that length, without what is below it; a host that lists cuts it itself. So if anything is chosen at
        any budget, something is at one block. Does not mutate state.
        """
        return None

    @abstractmethod
    def choose(self, state: S, nodes: Sequence[HostNode], budget_tokens: int, shape: BatchShape) -> list[int]:
        """Return indices into `nodes` (host-resident, parent resident or listed before), within the budget.

        Depends on forecasts, ends of workflows and the arguments only: a host does not ask again while these are the
        same. An empty answer must stay empty at a smaller budget. Does not mutate state but for what it learns of
        `readers`, which must change no answer at equal arguments.
        """


@dataclass(frozen=True)
class Predictor(Policy[S]):
    """Forecasts which agents a workflow runs next.

    trained      its parameters come from a file: it has an option `model`, and refuses to be made without
    reads_text   it uses `WorkflowView.features`; hosts that have them fill them in only when this is True
    """

    family: ClassVar[str] = "predictors"
    trained: ClassVar[bool] = False
    reads_text: ClassVar[bool] = False

    def active(self) -> bool:
        """Say whether this predictor forecasts at all."""
        return True

    def observe(self, state: S, workflow: WorkflowView) -> None:
        """A stage of the workflow was released; `workflow.agents[-1]` runs it. Mutates state."""

    def workflow_finished(self, state: S, workflow: WorkflowView) -> None:
        """No further request of the workflow will come: `workflow.agents` are all of them. Mutates state."""

    @abstractmethod
    def forecast(self, state: S, workflow: WorkflowView) -> NDArray[np.float32]:
        """Return float32[K, agents + 1], rows sum to 1, last column END.

        Row k - 1 is the distribution of the k-th next agent given that the workflow gets that far: END in row k - 1
        means that exactly k - 1 more agents run. Rows are not to be multiplied by survival a second time.
        """

    def forecasts(self, state: S, workflows: Sequence[WorkflowView]) -> list[NDArray[np.float32]]:
        """Return what `forecast` would of each workflow, in their order; hosts that have several ask once."""
        return [self.forecast(state, workflow) for workflow in workflows]

    def cost_ps(self, profile: Profile, workflows: int) -> int:
        """Return what forecasting `workflows` workflows in one batch takes, in ps.

        It is spent on a stream of its own, beside the engine's steps: a forecast arrives that much later.
        """
        return 0


@dataclass(frozen=True)
class Drafter(Policy[S]):
    """Proposes token continuations for running requests.

    on_cpu   it drafts on the CPU, from tokens that must have come back: the engine cannot schedule ahead, which shows
             the host time that asynchronous scheduling hides
    """

    family: ClassVar[str] = "drafters"
    on_cpu: ClassVar[bool] = True

    def active(self) -> bool:
        """Say whether this drafter ever drafts; a host then steps one token a time and may fast-forward if not."""
        return True

    def begin(self, state: S, request: RequestView, prompt_ids: NDArray[np.uint32]) -> None:
        """A request starts decoding. `prompt_ids` is empty where the trace has no ids. Mutates state."""

    @abstractmethod
    def propose(self, state: S, request: int, limit: int) -> Draft:
        """Return at most `limit` tokens for a request (`RequestView.request`); empty where nothing fits."""

    def commit(
        self,
        state: S,
        request: int,
        tokens: NDArray[np.uint32],
        blocks: NDArray[np.int8] | None = None,
    ) -> None:
        """The engine accepted and emitted `tokens` (bonus token included). Mutates state.

        blocks: int8[len(tokens)], the semantic block that is open after each token, 0 outside all, from hosts whose
        trace knows it; None: a drafter that cares follows the delimiters of `RequestView.structure` itself. A live
        engine's last commit may run past the request's end.
        """

    def propose_batch(self, state: S, requests: Sequence[int], limit: int) -> list[Draft]:
        """Return what `propose` would for each request, in their order; hosts that have several ask once."""
        return [self.propose(state, request, limit) for request in requests]

    def commit_batch(
        self,
        state: S,
        requests: Sequence[int],
        tokens: Sequence[NDArray[np.uint32]],
        blocks: Sequence[NDArray[np.int8] | None],
    ) -> None:
        """Do what `commit` would for each request, in their order; hosts that have several tell once. Mutates state."""
        for request, new, told in zip(requests, tokens, blocks, strict=True):
            self.commit(state, request, new, told)

    def finish(self, state: S, request: int) -> None:
        """The request ended. Mutates state."""

    def cost_ps(self, profile: Profile, seqs: int, drafted_tokens: int, context_tokens: int = 0) -> int:
        """Return what drafting adds to a step, charged at the target implementation's cost, in ps.

        seqs: sequences drafted for. drafted_tokens, context_tokens: their sums over these sequences.
        """
        return 0

    def memory_bytes(self, profile: Profile) -> tuple[int, int]:
        """Return what a draft model takes on ONE GPU: (bytes of weights, KV bytes a token); (0, 0) without one."""
        return 0, 0

    def acceptance(self) -> tuple[float, ...]:
        """Return P(k-th drafted token is accepted | those before it were) for k = 1, 2, ..., the last one repeated.

        For drafters whose tokens only their model could tell: the simulator draws what is accepted. () where the
        drafted tokens are real and can be compared with the recorded ones.
        """
        return ()


@dataclass(frozen=True)
class Budget(Policy[S]):
    """Divides draft tokens over the requests of a batch."""

    family: ClassVar[str] = "budgets"

    def limit(self, state: S, batch: BatchView) -> int:
        """Return the most tokens any drafter should propose for one request in this step."""
        return 0

    @abstractmethod
    def allocate(self, state: S, proposals: Proposals, batch: BatchView) -> NDArray[np.int32]:
        """Return int32[B]: tokens to verify for each request, at most `proposals.length`."""

    def observe(
        self, state: S, request: NDArray[np.int32], drafted: NDArray[np.int32], accepted: NDArray[np.int32]
    ) -> None:
        """Learn what the step verified. Mutates state."""


@dataclass(frozen=True)
class Bucketer(Policy[S]):
    """Chooses which shapes are captured as CUDA graphs, and which graph a step replays.

    reads_context   its choice depends on `BatchShape.context_tokens_max`: the host then asks before every step
    """

    family: ClassVar[str] = "bucketers"
    reads_context: ClassVar[bool] = False

    def active(self) -> bool:
        """Say whether any step ever runs in a graph; a host skips the question when none does."""
        return True

    @abstractmethod
    def plan(self, host: HostInfo) -> tuple[int, ...]:
        """Return the token widths to capture at start, ascending; empty for none."""

    @abstractmethod
    def pick(self, state: S, captured: Sequence[int], shape: BatchShape) -> GraphChoice:
        """Return the graph for a step of this shape. May mutate state (lazy capture)."""


@dataclass(frozen=True)
class Router(Policy[S]):
    """Chooses the replica of a request, and the order of a replica's queue.

    reads_dataflow   it uses `RequestView.depth`; hosts that know fill it in only when this is True
    """

    family: ClassVar[str] = "routers"
    reads_dataflow: ClassVar[bool] = False

    @abstractmethod
    def pick(self, state: S, request: RequestView, replicas: Sequence[ReplicaView]) -> int:
        """Return the index of the replica that gets the request. May mutate state."""

    def priority(self, state: S, request: RequestView) -> int:
        """Return the request's priority, lower first; used where the engine's queue is `priority`."""
        return request.priority


@dataclass(frozen=True)
class Gate(Policy[S]):
    """Decides whether candidate generation opens at a branch (Action 0) and which candidates are filled (Action 1)."""

    family: ClassVar[str] = "gates"

    # Fields of the controller's config that this gate's system fixes: {"demand": "drop", "priority": "low"}.
    style: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def open(self, state: S, branch: BranchView, load: LoadView) -> bool:
        """Action 0: say whether candidates are drafted at this branch. May mutate state (audits, load history)."""

    @abstractmethod
    def admit(self, state: S, branch: BranchView, options: Sequence[FillOption], load: LoadView) -> Admission:
        """Action 1: choose the candidates to fill now, best first. Does not mutate state."""

    def depth(self, state: S, branch: BranchView) -> int | None:
        """Return how many cycles of nested branches may run ahead of this entry; None leaves it to the host."""
        return None

    def revoke(self, state: S, running: Sequence[RunningFill], load: LoadView) -> Sequence[int]:
        """Return indices of fills to stop now; asked at probes and when canonical work is demanded."""
        return ()

    def revokes(self) -> bool:
        """Say whether `revoke` can ever return anything; a host skips the question when not."""
        return False

    def settle(self, state: S, outcome: BranchOutcome) -> None:
        """A branch settled: credit and charge. Mutates state."""

    def probe(self, state: S, load: LoadView) -> None:
        """Periodic sample of the load, also while the gate is closed. Mutates state."""

    def probe_period_ns(self) -> int | None:
        """Return how often this gate wants `probe`, None: never. Hosts may be coarser."""
        return None


@dataclass(frozen=True)
class CandidateDrafter(Policy[S]):
    """Ranks the likely outcomes of a branch."""

    family: ClassVar[str] = "candidates"

    @abstractmethod
    def propose(self, state: S, branch: BranchView, limit: int) -> Sequence[Candidate]:
        """Return at most `limit` candidates, rank 0 first; distinct in (outcome, arguments). May mutate state."""

    def cost_ns(self, state: S, branch: BranchView, limit: int) -> int | None:
        """Return what `propose` takes where it would really run, in ns; None: what the trace says."""
        return None

    def observe(self, state: S, branch: BranchView, outcome: int, arguments: int) -> None:
        """The branch resolved. Mutates state."""


@dataclass(frozen=True)
class ReusePolicy(Policy[S]):
    """Names finished subgraphs: what may be served from them, and how many are kept.

    The store itself, its freshness and its invalidation are the host's (`policies/reuse_index.py`): no policy can
    weaken them.
    """

    family: ClassVar[str] = "reuse"

    def active(self) -> bool:
        """Say whether anything is ever named; a host skips the work when nothing is."""
        return True

    @abstractmethod
    def names(self, state: S, stage: StageView) -> Sequence[ReuseName]:
        """Return the names under which this stage's result could already exist, outermost subgraph first."""

    def limits(self) -> tuple[int, str]:
        """Return (most records kept, 0 for any number; which goes first: "lru", "lfu" or "fifo")."""
        return 0, "lru"

    def prefilled(self, state: S, stage: StageView, name: ReuseName) -> bool:
        """Say whether the result under `name` was made before the run, offline. Does not mutate state."""
        return False


FAMILIES: dict[str, type[Policy[Any]]] = {
    c.family: c
    for c in (
        Gate, CandidateDrafter, ReusePolicy, Drafter, Budget, Evictor, Prefetcher, Predictor, Bucketer, Router,
    )
}  # fmt: skip

# The option that selects a policy of the family on the command line: `evictor=lru evictor.some_field=3`.
OPTION: dict[str, str] = {
    "gates": "gate", "candidates": "candidate", "reuse": "reuse", "drafters": "drafter", "budgets": "budget",
    "evictors": "evictor", "prefetchers": "prefetcher", "predictors": "predictor", "bucketers": "bucketer",
    "routers": "router",
}  # fmt: skip

__all__ = [
    "FAMILIES",
    "OPTION",
    "Access",
    "Admission",
    "BatchShape",
    "BatchView",
    "BranchOracle",
    "BranchOutcome",
    "BranchView",
    "Bucketer",
    "Budget",
    "CacheNode",
    "Candidate",
    "CandidateDrafter",
    "Draft",
    "Drafter",
    "Evictor",
    "FillOption",
    "FillOutcome",
    "Forecast",
    "Gate",
    "GraphChoice",
    "HostInfo",
    "HostNode",
    "LoadView",
    "Policy",
    "Predictor",
    "Prefetcher",
    "Profile",
    "Proposals",
    "ReplicaView",
    "RequestView",
    "ReuseName",
    "ReusePolicy",
    "Router",
    "RunningFill",
    "Scope",
    "Slowdown",
    "StageView",
    "WorkflowView",
]  # fmt: skip
