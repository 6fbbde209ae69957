"""The read-only views a policy may see. None of them reaches the truth (future lengths, acceptance, outcomes);
the oracles of `HostInfo` are None unless the policy declares `needs = {"oracle"}` (architecture law 4).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from policies.costs import Profile
from traces import draws


class CacheNode(Protocol):
    """A run of KV blocks in the prefix cache. In vLLM a node is one block, in the simulator a radix-tree node.

    id                unique in its host, never reused
    identity          equal whenever the same prefix content is resident again (ghost lists need it)
    tokens            KV tokens it holds
    depth_tokens      prefix tokens up to and including this node
    parent            node above it, None below the root
    created_ns        when it became resident
    last_access_ns    last insert or hit of this node itself; hits of descendants are not written through
    """

    @property
    def id(self) -> int:
        """Unique number in its host."""
        ...

    @property
    def identity(self) -> int:
        """Number of its content."""
        ...

    @property
    def tokens(self) -> int:
        """KV tokens it holds."""
        ...

    @property
    def depth_tokens(self) -> int:
        """Prefix tokens down to its end."""
        ...

    @property
    def parent(self) -> CacheNode | None:
        """Node above it, None below the root."""
        ...

    @property
    def created_ns(self) -> int:
        """When it became resident."""
        ...

    @property
    def last_access_ns(self) -> int:
        """Its own last insert or hit."""
        ...


class Access(NamedTuple):
    """Who touches the cache, and when. -1 where the trace names none."""

    now_ns: int
    workflow: int
    stage: int
    agent: int


class HostNode(CacheNode, Protocol):
    """A run of blocks in the host tier that HBM lacks.

    readers   (workflow, agent) of active workflows that have read or written the run, by first read. A workflow's
              agent reads a run when one of its requests had the run in its prefix
    """

    @property
    def readers(self) -> Sequence[tuple[int, int]]:
        """Who read it."""
        ...


class Oracle(Protocol):
    """What a policy with `needs = {"oracle"}` may ask. Offline references only."""

    def next_use(self, node: CacheNode) -> int:
        """Return the rank, in the recorded order, of the next access that would read `node`; a large int if none."""
        ...

    def away_ns(self, stage: int) -> int:
        """Return the time from the end of a request to the release of the next one that waits for it.

        Tools and waits between them, by the trace; other requests that the next one waits for count as done. A large
        int where none follows, 0 for a stage that the trace does not know.
        """
        ...

    def forecast(self, workflow: int, steps: int, released: int | None = None) -> NDArray[np.float32]:
        """Return float32[steps, agents + 1]: the true next agents as one-hot rows; the last column is END.

        "Next" is after the first `released` requests of the workflow; None: after those admitted by now.
        """
        ...

    def output_tokens(self, stage: int, position: int, count: int) -> NDArray[np.uint32]:
        """Return at most `count` of the tokens that a stage's request emits from `position` on.

        Zeros where the trace holds no ids.
        """
        ...


class BranchOracle(Protocol):
    """What a candidate drafter or gate with `needs = {"oracle"}` may ask. Offline references only."""

    def choice(self, branch: BranchView) -> tuple[int, int]:
        """Return the (outcome, arguments) that this branch entry will resolve to."""
        ...


@dataclass(frozen=True)
class Slowdown:
    """How much slower canonical requests run beside fills, probed on the engine before the run.

    fills            fills resident on one replica, ascending from 0
    context_tokens   KV tokens of each fill, ascending
    ratio            float[len(fills)][len(context_tokens)]: canonical latency over that without fills; row 0 is 1
    """

    fills: tuple[int, ...]
    context_tokens: tuple[int, ...]
    ratio: tuple[tuple[float, ...], ...]

    def at(self, fills: float, fill_kv_tokens: float) -> float:
        """Return the ratio for `fills` fills that hold `fill_kv_tokens` together; bilinear, last slope beyond."""
        if fills <= 0:
            return 1.0
        each = fill_kv_tokens / fills
        i, u = _place(self.fills, fills)
        j, v = _place(self.context_tokens, each)
        low, high = self.ratio[i], self.ratio[min(i + 1, len(self.ratio) - 1)]
        k = min(j + 1, len(low) - 1)
        a = low[j] + (low[k] - low[j]) * v
        b = high[j] + (high[k] - high[j]) * v
        return max(a + (b - a) * u, 1.0)


def _place(knots: tuple[int, ...], x: float) -> tuple[int, float]:
    """Return the index of the interval that x lies in and how far, above 1 beyond the last knot."""
    if len(knots) == 1:
        return 0, 0.0
    i = min(max(bisect_right(knots, x) - 1, 0), len(knots) - 2)
    return i, max((x - knots[i]) / (knots[i + 1] - knots[i]), 0.0)


@dataclass(frozen=True)
class HostInfo:
    """What a host tells a policy once, when it asks for a state.

    capacity_tokens   KV tokens one replica can hold
    agents            agent names; Access.agent indexes them
    slowdown          what fills cost canonical requests, None where nobody probed
    token_text        text of a token id, for drafters that read delimiters; None where ids are hashed
    hosted_tokens     evictors of HBM above a host tier: how many leading tokens of the path down to a node the host
                      tier would have once the node is evicted. None without a host tier
    host_bytes_per_s  what the link from there carries; 0 without a host tier
    """

    profile: Profile
    block_tokens: int
    capacity_tokens: int
    host_capacity_tokens: int = 0
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    replicas: int = 1
    agents: tuple[str, ...] = ()
    seed: int = 0
    oracle: Oracle | None = None
    slowdown: Slowdown | None = None
    branch_oracle: BranchOracle | None = None
    token_text: Callable[[int], str] | None = None
    hosted_tokens: Callable[[CacheNode], int] | None = None
    host_bytes_per_s: int = 0

    def draw(self, purpose: str, *ids: int) -> float:
        """Return a uniform float in [0, 1) that depends on the run's seed, the purpose and the ids alone."""
        return draws.uniform(self.seed, purpose, *ids)


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request as a router or drafter sees it; its output length is unknown.

    request   the host's number for it, unique while it lives: what drafters key their state by
    stage     the stage of the trace it serves, -1 without a trace; two fills may serve one stage
    structure text of the request's paired delimiters (AgentSpec A.1), None where it names none
    query     the user query that caused the request (query_id of AgentSpec A.1), -1 where none is given
    depth     longest chain of the workflow's stages known to depend on it; 0 where the host does not say
    output_length_tokens   the recorded length, for drafters with `needs = {"output_length"}`; -1 for all others
    """

    request: int
    stage: int
    workflow: int
    agent: int
    released_ns: int
    prompt_tokens: int
    priority: int = 0
    structure: str | None = None
    query: int = -1
    depth: int = 0
    output_length_tokens: int = -1


class ReplicaView(Protocol):
    """One engine as a router sees it."""

    @property
    def index(self) -> int:
        """Place among the replicas."""
        ...

    @property
    def running(self) -> int:
        """Requests admitted and not ended."""
        ...

    @property
    def waiting(self) -> int:
        """Requests released and not admitted."""
        ...

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens released to this replica and not yet prefilled."""
        ...

    @property
    def kv_tokens_active(self) -> int:
        """KV tokens that running requests hold."""
        ...

    def cached_tokens(self, request: RequestView) -> int:
        """Leading prompt tokens of `request` resident in this replica's HBM. Does not touch the cache."""
        ...


class BatchShape(NamedTuple):
    """Shape of the step about to run; made at every step, hence a tuple.

    decode_seqs   sequences that decode or verify
    query_tokens  new tokens of each such sequence when all have the same number, else 0 (ragged)
    tokens        new tokens of the step, prefill included
    prefill_seqs  sequences in prefill; any makes the batch non-uniform
    context_tokens      KV tokens that decoding sequences read, summed
    query_tokens_max    new tokens of the sequence that has most; 0: as `query_tokens` says
    context_tokens_max  the longest of their contexts; 0 unless the bucketer asks (`Bucketer.reads_context`)
    """

    decode_seqs: int
    query_tokens: int
    tokens: int
    prefill_seqs: int
    context_tokens: int
    query_tokens_max: int = 0
    context_tokens_max: int = 0

    @property
    def rectangle_tokens(self) -> int:
        """Tokens of the rectangle that holds a pure-decode step: sequences times the longest query."""
        return self.decode_seqs * max(self.query_tokens_max, self.query_tokens, 1)


@dataclass(frozen=True, slots=True)
class GraphChoice:
    """What a bucketer picked for a step.

    key          the graph's number; None runs eagerly
    executed     tokens that its grid covers
    active       tokens that its kernels work on, and are priced: `executed` where a graph pads, fewer where they read
                 the extent from a plan buffer and the tiles beyond it only test their guard
    build        the graph must be captured first, on the serving path
    plan_update  a plan buffer is written before the replay
    piecewise    attention is launched layer by layer between graphs
    holds_until_tokens: the choice stays the same while the step's tokens do not exceed it and the shape's kind does
    not change (0: ask every step)
    """

    key: int | None
    executed: int
    active: int
    build: bool = False
    holds_until_tokens: int = 0
    plan_update: bool = False
    piecewise: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposal for one request, and what a budget may weigh it by.

    tokens            uint32[n]: ids, hashed as in the trace; zeros where the drafter states its acceptance
    confidence        float32[n]: estimated probability that a token and all before it are accepted; descends
    consensus_tokens  leading tokens that all `agreeing` continuations share: |CT*| of AgentSpec's equation 3
    matches           n of equation 1: continuations that the drafter found in its history
    agreeing          c of equation 1: those of them that begin with the most frequent prefix
    """

    tokens: NDArray[np.uint32]
    confidence: NDArray[np.float32]
    consensus_tokens: int = 0
    matches: int = 0
    agreeing: int = 0

    @property
    def redundancy(self) -> float:
        """Return c/n of AgentSpec's equation 1: the share of the matches that agree; 0 without a match."""
        return self.agreeing / self.matches if self.matches else 0.0


@dataclass(frozen=True, slots=True)
class LoadView:
    """V_t of DynBranch section 3.4: fills in flight, their reserved KV tokens, canonical load in [0, 1].

    fills, fill_kv_tokens   admitted and not ended, over all replicas, and the KV tokens reserved for them
    fills_max, fill_kv_tokens_max   the reservation budget
    canonical_seqs          canonical requests running or waiting, over all replicas
    """

    now_ns: int
    fills: int
    fill_kv_tokens: int
    fill_kv_tokens_max: int
    canonical_load: float
    fills_max: int = 8
    canonical_seqs: int = 0


@dataclass(frozen=True, slots=True)
class BranchView:
    """A branch entry before it resolves. `coordinate` is its stable identity in the workflow's template.

    history          outcomes of the workflow's earlier branches, oldest first
    menu             outcomes of the options that the template or the context names; empty: an open space unseen
    menu_arguments   arguments each option would be taken with, in the menu's order; empty: none matter
    scores           float per option for each kind of ranker whose scores were computed where the text is;
                     negative or NaN: that ranker cannot propose the option
    """

    workflow: int
    stage: int
    coordinate: int
    agent: int
    opened_ns: int
    history: tuple[int, ...] = ()
    menu: tuple[int, ...] = ()
    menu_arguments: tuple[int, ...] = ()
    scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    open_space: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible outcome: its id in the branch's space, rank (0 best) and the drafter's score in [0, 1]."""

    outcome: int
    rank: int
    score: float
    arguments: int = 0


@dataclass(frozen=True, slots=True)
class FillOption:
    """A candidate with what filling it would take, as a gate sees it.

    key             template of the first stage of its path: what estimates are learned under
    stages          stages that would run early
    kv_tokens       KV tokens to reserve; 0 when no engine is involved
    prompt_tokens   prompt of its first LLM stage
    cached_tokens   of these, resident where the fill would run: they are not prefilled again
    exec_ns         what its stages took on average so far, 0 where one was never seen
    """

    candidate: Candidate
    key: int
    stages: int
    kv_tokens: int
    prompt_tokens: int = 0
    exec_ns: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Admission:
    """Which candidates are filled now, best first (indices into the options given); `audits` of them on trial."""

    rows: tuple[int, ...]
    audits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningFill:
    """A fill in flight, as a gate that revokes sees it."""

    branch: BranchView
    candidate: Candidate
    launched_ns: int
    kv_tokens: int
    resolved: bool


@dataclass(frozen=True, slots=True)
class FillOutcome:
    """How one fill ended. Times in ns.

    end          promoted (at least one stage), or why not: unselected, wrong argument, late, stale, served (finished
                 work served its demand first), revoked, failed, unspeculable, parent, closed
    selected     its choice was taken, whatever the arguments
    promoted     stages promoted, of `stages` that ran or would have
    exec_ns      from launch to the end of its last finished stage (or to its end, when cancelled)
    engine_ns    residence in engines; `wasted_ns` of it went into stages that were not promoted
    saved_ns     execution of promoted stages less the wait for them (`stalled_ns`)
    load         what the gate saw when it admitted the fill
    """

    option: FillOption
    end: str
    selected: bool
    promoted: int
    stages: int
    exec_ns: int
    engine_ns: int
    wasted_ns: int
    saved_ns: int
    stalled_ns: int
    load: LoadView
    audit: bool = False


@dataclass(frozen=True, slots=True)
class BranchOutcome:
    """How a branch settled: the real outcome, every fill's end, and what it cost and saved in ns.

    opened       Action 0 said yes
    load         what the gate saw at the opening
    window_ns    from the opening to the resolution, -1 when it never resolved
    """

    branch: BranchView
    chosen: int
    opened: bool
    candidates: tuple[Candidate, ...]
    fills: tuple[FillOutcome, ...]
    setup_ns: int
    saved_ns: int
    wasted_ns: int
    stalled_ns: int
    window_ns: int
    load: LoadView
    arguments: int = 0


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of a workflow that begins with a stage and could be served whole.

    kind          "subgraph" (a nested interval of the template) or "request" (the whole workflow)
    fingerprint   of its template
    inputs        hash of the realised values that enter it from outside
    parameters    model and execution parameters of its stages
    stages        how many canonical stages it covers, the beginning one included
    span          how many stage numbers it spans, stages of options that were not taken included; 0: `stages`
    keys          resources its stages read, where that is known beforehand
    nll           negative log-likelihood of the request under an aligned model, None where nobody computed it
    """

    kind: str
    fingerprint: int
    inputs: int
    parameters: int
    stages: int
    keys: tuple[int, ...] = ()
    nll: float | None = None
    span: int = 0


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage as the reuse index sees it: fingerprint of its template and of its realised rendered input.

    parameters     model and execution parameters
    read_set       (resource key, version) that it reads, at the versions of the moment
    scopes         parts that begin with it, outermost first; none that holds a mutating or sampling stage
    prefix_input   hash of all inputs rendered in its workflow up to and including this one, 0 when unknown
    reusable       False for a mutating or sampling stage: its result serves nobody else
    """

    workflow: int
    stage: int
    agent: int
    fingerprint: int
    rendered_input: int
    parameters: int = 0
    read_set: tuple[tuple[int, int], ...] = ()
    scopes: tuple[Scope, ...] = ()
    prefix_input: int = 0
    reusable: bool = True


@dataclass(frozen=True, slots=True)
class ReuseName:
    """Name of a finished subgraph: equal names promise equal outputs. `stages`: how many stages it covers."""

    scope: str
    value: int
    stages: int = 1


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """A running workflow as a predictor sees it: agents invoked so far, oldest first.

    features   float32[policies.training.text.DIMS] of the newest invocation, None where the host has none
    """

    workflow: int
    agents: tuple[int, ...]
    now_ns: int
    features: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """Next-agent distribution of one workflow: float32[K, agents + 1], last column END, rows sum to 1."""

    workflow: int
    now_ns: int
    probability: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Proposals:
    """Drafts of one step's batch, in batch order. `length` int32[B] is the most each request can use."""

    request: NDArray[np.int32]
    length: NDArray[np.int32]
    drafts: Sequence[Draft]
    acceptance: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class BatchView:
    """The decode batch a budget divides its tokens over. A live host describes the batch that just ran."""

    now_ns: int
    seqs: int
    context_tokens: int
    prefill_tokens: int
    extra: Mapping[str, float] = field(default_factory=dict)
