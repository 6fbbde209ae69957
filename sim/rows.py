"""Rows that a replica writes of its requests: how each ended, and decisions that no other table implies."""

from __future__ import annotations

from collections.abc import Callable

from sim.clock import PS_PER_NS, Clock
from sim.log import RunLog
from sim.request import Request
from traces.tables import REQUEST_STATUS

_STATUS = {name: i for i, name in enumerate(REQUEST_STATUS)}


class RequestRows:
    """Writes to the log; mutates nothing else."""

    def __init__(
        self,
        env: Clock,
        index: int,
        log: RunLog,
        fill_ended: Callable[[Request, int, str], None] | None = None,
    ) -> None:
        self._fill_ended = fill_ended
        self._env = env
        self._index = index
        self._log = log

    def gap(self, request: Request, gap_ns: int) -> None:
        """A canonical request's token came `gap_ns` after its predecessor, which the step before did not emit."""
        if not request.fill:
            self.decision("gap", request, gap_ns)

    def decision(self, action: str, request: Request, value: int) -> None:
        """Write a decision of the engine about a request ("gap": ns without a token; "preempt": tokens lost)."""
        now_ns = self._env.now // PS_PER_NS
        self._log.add(
            "decisions", (now_ns, self._index, "engine", action, request.workflow, request.stage, value)
        )

    def end(self, request: Request, finished_ps: int, status: str, reason: str = "") -> None:
        """Write how a request ended; `finished_ps` is -1 if it did not. Of a fill, tell who knows what became of it."""
        if request.fill:
            assert self._fill_ended is not None
            self._fill_ended(request, finished_ps, status)
            return
        self._log.add(
            "requests",
            (
                request.stage, request.workflow, request.agent, self._index, request.prompt_tokens,
                request.generated, request.released_ps // PS_PER_NS, _ns(request.admitted_ps),
                _ns(request.first_token_ps), _ns(finished_ps), request.gpu_hit_tokens,
                request.host_hit_tokens, request.prefilled_tokens, request.recomputed_tokens,
                request.preemptions, request.drafted_tokens, request.accepted_tokens, _STATUS[status], reason,
            ),
        )  # fmt: skip


def _ns(ps: int) -> int:
    return ps // PS_PER_NS if ps >= 0 else -1
