"""What a run in vLLM leaves in the simulator's tables of requests, cache events, decisions and workflows.

Times are nanoseconds since the recorder began. A first token is seen when the step after it is scheduled, or when
its request ends, so its time is late by up to the engine's own work between two steps. `live.vllm.steps` has the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from live.recorder import TableRecorder
from live.vllm.attribution import Attribution
from live.vllm.blocks import Node
from policies.views import Access
from traces.tables import CACHE_EVENTS, REQUEST_STATUS

_HIT, _INSERT, _EVICT = (CACHE_EVENTS.index(e) for e in ("hit", "insert", "evict"))


@dataclass(slots=True)
class _Open:
    """A request between its arrival and its end. `computed` counts tokens whose KV exists or is scheduled."""

    sender: Attribution
    prompt_tokens: int
    released_ns: int
    admitted_ns: int = -1
    first_token_ns: int = -1
    offered_tokens: int = 0
    hit_tokens: int = 0
    host_tokens: int = 0
    target_tokens: int = 0
    computed: int = 0
    prefilled: int = 0


@dataclass(slots=True)
class _Workflow:
    started_ns: int
    requests: int = 0
    rejected: int = 0


class RunRecords:
    """Keeps open requests and writes rows. Every method mutates."""

    def __init__(self, tables: TableRecorder) -> None:
        self.tables = tables
        self._open: dict[str, _Open] = {}
        self._starting: set[str] = set()
        self._workflows: dict[int, _Workflow] = {}

    # -- requests -------------------------------------------------------------------------------------------

    def released(self, request: str, sender: Attribution, prompt_tokens: int, now_ns: int) -> None:
        """A request arrived."""
        self._open[request] = _Open(sender, prompt_tokens, now_ns)
        if sender.workflow >= 0:
            self._workflows.setdefault(sender.workflow, _Workflow(now_ns)).requests += 1

    def sender(self, request: str) -> Attribution:
        """Return who sent an open request."""
        known = self._open.get(request)
        return known.sender if known is not None else Attribution()

    def offered(self, request: str, hit_tokens: int) -> None:
        """The engine found `hit_tokens` of the request's tokens cached and may admit it now."""
        if request in self._open:
            self._open[request].offered_tokens = hit_tokens

    def admitted(self, request: str, target_tokens: int, now_ns: int, host_tokens: int = 0) -> None:
        """The request has its blocks; `target_tokens` are to be known before it goes on.

        host_tokens: of those, loaded from the host tier.
        """
        record = self._open.get(request)
        if record is None:
            return
        if record.admitted_ns < 0:
            record.admitted_ns = now_ns
            record.hit_tokens = record.offered_tokens
            record.host_tokens = host_tokens
        record.computed = record.offered_tokens + host_tokens
        record.target_tokens = target_tokens
        self._starting.add(request)

    def scheduled(self, request: str, tokens: int) -> None:
        """A step computes `tokens` more tokens of the request."""
        record = self._open.get(request)
        if record is not None:
            record.prefilled += max(0, min(tokens, record.target_tokens - record.computed))
            record.computed += tokens

    def preempted(self, request: str, tokens: int, now_ns: int) -> None:
        """The request lost its blocks and waits again, to compute `tokens` or what of them is not cached by then."""
        sender = self.sender(request)
        self.tables.add("decisions", (now_ns, 0, "engine", "preempt", sender.workflow, sender.stage, tokens))

    def tokens_seen(self, generated: dict[str, int], now_ns: int) -> None:
        """Requests have so many output tokens by now; only those without a first token are looked at."""
        for request in list(self._starting):
            if generated.get(request, 0) > 0:
                self._first_token(request, now_ns)

    @property
    def open(self) -> int:
        """Requests that arrived and have not ended."""
        return len(self._open)

    @property
    def starting(self) -> set[str]:
        """Requests admitted whose first token was not seen."""
        return self._starting

    def ended(
        self,
        request: str,
        output_tokens: int,
        preemptions: int,
        status: str,
        now_ns: int,
        drafted: tuple[int, int] = (0, 0),
    ) -> None:
        """The request ended; `status` is one of REQUEST_STATUS, `drafted` its drafted and accepted tokens."""
        record = self._open.get(request)
        if record is None:
            return
        if output_tokens and record.first_token_ns < 0:
            self._first_token(request, now_ns)
        self._starting.discard(request)
        del self._open[request]
        sender = record.sender
        # What others published meanwhile can make up for more than was lost: the surplus is a hit.
        known = record.hit_tokens + record.host_tokens
        recomputed = record.prefilled + known - record.prompt_tokens if preemptions else 0
        self.tables.add(
            "requests",
            (
                sender.stage, sender.workflow, sender.agent, 0, record.prompt_tokens, output_tokens,
                record.released_ns, record.admitted_ns, record.first_token_ns, now_ns,
                record.hit_tokens - min(0, recomputed), record.host_tokens, record.prefilled, max(0, recomputed),
                preemptions, *drafted,
                REQUEST_STATUS.index(status), "" if status == "finished" else "by the client",
            ),
        )  # fmt: skip
        if status != "finished" and sender.workflow in self._workflows:
            self._workflows[sender.workflow].rejected += 1

    def workflow_ended(self, workflow: int, now_ns: int) -> None:
        """No further request of the workflow will come."""
        known = self._workflows.pop(workflow, None)
        if known is not None:
            self._workflow_row(workflow, known, now_ns)

    def close(self) -> None:
        """Write the rows of workflows that nobody finished."""
        for workflow, known in sorted(self._workflows.items()):
            self._workflow_row(workflow, known, -1)
        self._workflows.clear()

    # -- cache events (`live.vllm.blocks.BlockLog`) ---------------------------------------------------------

    def inserted(self, node: Node, blocks: int, access: Access) -> None:
        """`blocks` new nodes, the deepest of them `node`."""
        self._block(access.now_ns, _INSERT, node, blocks, access.workflow, access.stage)

    def hit(self, node: Node, blocks: int, access: Access) -> None:
        """A request found its leading `blocks` blocks."""
        self._block(access.now_ns, _HIT, node, blocks, access.workflow, access.stage)

    def evicted(self, node: Node, now_ns: int) -> None:
        """A content left."""
        self._block(now_ns, _EVICT, node, 1, -1, -1)

    def moved(self, event: int, node: Node | None, blocks: int, access: Access) -> None:
        """Contents went between the tiers; `event` is one of the host tier's in CACHE_EVENTS."""
        id = node.id if node is not None else -1
        self.tables.add("blocks", (access.now_ns, 0, event, id, blocks, access.workflow, access.stage))

    def content(self, tier: str, node: Node, now_ns: int) -> None:
        """Name the content of a new node, so that a reader knows it again when it comes back as another."""
        self.tables.add("decisions", (now_ns, 0, tier, "content", -1, node.id, node.identity >> 1))

    def decided(self, family: str, action: str, value: int, now_ns: int) -> None:
        """Write a row of `decisions` that belongs to no workflow."""
        self.tables.add("decisions", (now_ns, 0, family, action, -1, -1, value))

    def _block(self, now_ns: int, event: int, node: Node, blocks: int, workflow: int, stage: int) -> None:
        self.tables.add("blocks", (now_ns, 0, event, node.id, blocks, workflow, stage))

    def _first_token(self, request: str, now_ns: int) -> None:
        self._open[request].first_token_ns = now_ns
        self._starting.discard(request)

    def _workflow_row(self, workflow: int, known: _Workflow, now_ns: int) -> None:
        row: tuple[Any, ...] = (
            workflow, known.started_ns, known.started_ns, now_ns, known.requests, known.requests, known.rejected, 0,
        )  # fmt: skip
        self.tables.add("workflows", row)
