"""Draft lengths from a schedule instead of a model: how adaptive drafting shapes a step, without its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from policies._draft_schedules import adaedl, opt_tree, pearl
from policies._rectangles import check_width
from policies.api import Draft, Drafter, HostInfo, RequestView
from traces.errors import InputError


@dataclass
class Progress:
    """One request: its recorded output length, tokens emitted, AdaEDL's threshold and acceptance average."""

    number: int
    length_tokens: int
    emitted: int = 0
    proposed: int = 0
    threshold: float = 0.5
    average: float = 0.5


@dataclass
class ScheduleState:
    """Requests that decode, and where draws come from."""

    host: HostInfo
    requests: dict[int, Progress]


@dataclass(frozen=True)
class Scheduled(Drafter[ScheduleState]):
    """Proposes as many tokens as a schedule says; which of them count is a stated process.

    schedule  pearl: d falls from d_max to 1 as generation proceeds; adaedl: stop where a bound on the acceptance
              falls below an adaptive threshold; opt_tree: grow a path while the next token's weight pays; fixed: d_max
    d_max     widest verification of one sequence, in new tokens
    bonus     True: d drafted tokens and the step's own are verified, M = B (d + 1), as vLLM does; False: d counts
              the step's own token, M = B d, as PolyGraph has it
    rate      probability that a drafted token is accepted (assumed: no model stands behind a schedule)
    entropy   adaedl, opt_tree: mean of the draft distribution's entropy in nats, drawn exponentially (assumed)

    The pearl schedule needs the recorded output length. Sources: PolyGraph, section 4 ("a PEARL-style schedule that
    shortens the draft as generation proceeds"); AdaEDL; OPT-Tree.
    """

    schedule: Literal["pearl", "adaedl", "opt_tree", "fixed"] = "pearl"
    d_max: int = 8
    bonus: bool = False
    rate: float = 0.6
    entropy: float = 1.0

    label = "scheduled lengths"
    source = "PolyGraph, section 4"
    needs = frozenset({"output_length"})
    on_cpu = False

    def __post_init__(self) -> None:
        check_width(self.d_max)
        if not 0.0 <= self.rate <= 1.0:
            raise InputError(f"rate={self.rate}: expected a probability")
        if not 0.0 < self.entropy <= 100.0:
            raise InputError(f"entropy={self.entropy}: expected a mean above 0 and at most 100 nats")

    def new_state(self, host: HostInfo) -> ScheduleState:
        """Return a state without requests."""
        return ScheduleState(host, {})

    def acceptance(self) -> tuple[float, ...]:
        """Return the assumed acceptance, the same at every position."""
        return (self.rate,)

    def begin(self, state: ScheduleState, request: RequestView, prompt_ids: NDArray[np.uint32]) -> None:
        """Start a request. Mutates state."""
        number = request.stage if request.stage >= 0 else request.request
        state.requests[request.request] = Progress(number, request.output_length_tokens)

    def propose(self, state: ScheduleState, request: int, limit: int) -> Draft:
        """Return the scheduled number of tokens, at most `limit`. Mutates state (what adaedl learns from)."""
        at = state.requests[request]
        width = min(self._width(state.host, at) - (not self.bonus), limit)
        at.proposed = max(width, 0)
        return Draft(
            np.zeros(at.proposed, dtype=np.uint32), np.full(at.proposed, self.rate, dtype=np.float32)
        )

    def commit(
        self,
        state: ScheduleState,
        request: int,
        tokens: NDArray[np.uint32],
        blocks: NDArray[np.int8] | None = None,
    ) -> None:
        """Count what was emitted; adaedl moves its threshold. Mutates state."""
        at = state.requests[request]
        at.emitted += len(tokens)
        if self.schedule == "adaedl" and at.proposed:
            at.threshold, at.average = adaedl.learn(
                at.threshold, at.average, at.proposed, min(len(tokens) - 1, at.proposed)
            )
        at.proposed = 0

    def finish(self, state: ScheduleState, request: int) -> None:
        """Forget the request. Mutates state."""
        del state.requests[request]

    def _width(self, host: HostInfo, at: Progress) -> int:
        if self.schedule == "fixed":
            return self.d_max
        if self.schedule == "pearl":
            return pearl.width(at.emitted, at.length_tokens, self.d_max)
        draws = [host.draw("draft entropy", at.number, at.emitted, k) for k in range(self.d_max)]
        if self.schedule == "adaedl":
            return adaedl.width(draws, self.entropy, at.threshold)
        return opt_tree.width(draws, self.entropy)
