"""The read-only views a policy may see. None of them reaches the truth (future lengths, acceptance, outcomes);
`HostInfo.oracle` is None unless the policy declares `needs = {"oracle"}` (architecture law 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def forecast(self, workflow: int, steps: int, released: int | None = None) -> NDArray[np.float32]:
        """Return float32[steps, agents + 1]: the true next agents as one-hot rows; the last column is END.

        "Next" is after the first `released` requests of the workflow; None: after those admitted by now.
        """
        ...


@dataclass(frozen=True)
class HostInfo:
    """What a host tells a policy once, when it asks for a state.

    capacity_tokens   KV tokens one replica can hold
    agents            agent names; Access.agent indexes them
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

    def draw(self, purpose: str, *ids: int) -> float:
        """Return a uniform float in [0, 1) that depends on the run's seed, the purpose and the ids alone."""
        return draws.uniform(self.seed, purpose, *ids)


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request as a router or drafter sees it; its output length is unknown.

    request   the host's number for it, unique while it lives: what drafters key their state by
    stage     the stage of the trace it serves, -1 without a trace; two fills may serve one stage
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


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Shape of the step about to run.

    decode_seqs   sequences that decode or verify
    query_tokens  new tokens of each such sequence when all have the same number, else 0 (ragged)
    tokens        new tokens of the step, prefill included
    prefill_seqs  sequences in prefill; any makes the batch non-uniform
    """

    decode_seqs: int
    query_tokens: int
    tokens: int
    prefill_seqs: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class GraphChoice:
    """What a bucketer picked: `key` None runs eagerly; `executed` tokens are priced, `active` do work; `build`
    says that the graph must be captured first, on the serving path. `holds_until_tokens`: the choice stays the
    same while the step's tokens do not exceed it and the shape's kind does not change (0: ask every step).
    """

    key: int | None
    executed: int
    active: int
    build: bool = False
    holds_until_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposal for one request: token ids (hashed as in the trace) and the drafter's confidence per token."""

    tokens: NDArray[np.uint32]
    confidence: NDArray[np.float32]
    consensus_tokens: int = 0
    redundancy: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadView:
    """V_t of DynBranch section 3: fills in flight, their KV tokens, canonical load in [0, 1]."""

    now_ns: int
    fills: int
    fill_kv_tokens: int
    fill_kv_tokens_max: int
    canonical_load: float


@dataclass(frozen=True, slots=True)
class BranchView:
    """A branch entry before it resolves. `coordinate` is its stable identity in the workflow's template."""

    workflow: int
    stage: int
    coordinate: int
    agent: int
    opened_ns: int
    history: tuple[int, ...] = ()
    menu: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible outcome: its id in the branch's space, rank (0 best) and the drafter's score in [0, 1]."""

    outcome: int
    rank: int
    score: float
    arguments: int = 0


@dataclass(frozen=True, slots=True)
class Admission:
    """Which candidates are filled now, best first (indices into the candidates given)."""

    rows: tuple[int, ...]
    holds_until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class BranchOutcome:
    """How a branch settled: the winner, which fills were issued and used, and what they cost and saved in ns."""

    branch: BranchView
    chosen: int
    opened: bool
    filled: tuple[Candidate, ...]
    promoted: tuple[int, ...]
    setup_ns: int
    saved_ns: int
    wasted_ns: int
    stalled_ns: int


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage as the reuse index sees it: fingerprint of its template and of its realised rendered input."""

    workflow: int
    stage: int
    agent: int
    fingerprint: int
    rendered_input: int
    parameters: int = 0
    read_set: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReuseName:
    """Name of a finished subgraph: equal names promise equal outputs."""

    scope: str
    value: int


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
