"""Steps of a running engine, as rows of the simulator's table.

A step opens when it has been scheduled and closes when its output has been accounted; with asynchronous scheduling the
next one opens in between, so that durations overlap. What a step accepted is what its requests have more tokens for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from live.recorder import TableRecorder


class Progress(Protocol):
    """What is read of vLLM's `Request`."""

    num_computed_tokens: int
    num_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class Pool:
    """KV blocks at one moment: held by running requests; free, but with a content."""

    active: int
    cached: int


@dataclass(slots=True)
class _Step:
    start_ns: int
    row: tuple[int, ...]
    drafts: dict[str, int]
    before: dict[str, int]  # decoding requests, and their output tokens by then
    accepted: int = 0


class StepRecords:
    """Writes one row a step, and counts what each request drafted. Every method mutates."""

    def __init__(self, tables: TableRecorder) -> None:
        self._tables = tables
        self._open: deque[_Step] = deque()
        self._emitting: set[str] = set()  # requests that got a token from the step before
        self._counts: dict[str, tuple[int, int]] = {}  # drafted and accepted tokens of running requests

    def opened(
        self,
        scheduled: dict[str, int],
        drafts: dict[str, int],
        requests: dict[str, Progress],
        waiting: int,
        pool: Pool,
        now_ns: int,
    ) -> None:
        """A step computes `scheduled` tokens of each request, `drafts` of them drafted."""
        decoding: dict[str, int] = {}
        context = prefill_seqs = prefill_tokens = 0
        emitting: set[str] = set()
        for name, tokens in scheduled.items():
            request = requests.get(name)
            if request is None:
                continue
            new = tokens - drafts.get(name, 0)
            if request.num_output_tokens and request.num_tokens - request.num_computed_tokens <= 1:
                decoding[name] = request.num_output_tokens
                context += request.num_computed_tokens + 1  # with the token that it writes
            else:
                prefill_seqs += 1
                prefill_tokens += tokens
            if request.num_computed_tokens + new >= request.num_tokens:
                emitting.add(name)
        row = (
            len(decoding), 0, len(self._emitting & decoding.keys()), prefill_seqs, prefill_tokens, context,
            waiting, pool.active, pool.cached,
        )  # fmt: skip
        self._emitting = emitting
        self._open.append(_Step(now_ns, row, dict(drafts), decoding))

    def ended(self, request: str, output_tokens: int) -> tuple[int, int]:
        """A request ended in the step that closes next; return what it drafted, and what of that was accepted."""
        if self._open:
            self._account(self._open[0], request, output_tokens)
        return self._counts.pop(request, (0, 0))

    def closed(self, requests: dict[str, Progress], now_ns: int) -> None:
        """The oldest open step has been accounted."""
        if not self._open:
            return
        step = self._open.popleft()
        for name in list(step.before):
            if name in requests:
                self._account(step, name, requests[name].num_output_tokens)
        drafted = sum(step.drafts.values())
        self._tables.add(
            "steps", (0, step.start_ns, now_ns - step.start_ns, *step.row, drafted, step.accepted, 0)
        )

    def flush(self, requests: dict[str, Progress], now_ns: int) -> None:
        """Close what is open: the engine ends."""
        while self._open:
            self.closed(requests, now_ns)

    def _account(self, step: _Step, request: str, output_tokens: int) -> None:
        before = step.before.pop(request, None)
        if before is None:
            return
        accepted = max(output_tokens - before - 1, 0)
        step.accepted += accepted
        drafted, known = self._counts.get(request, (0, 0))
        self._counts[request] = (drafted + step.drafts.get(request, 0), known + accepted)
