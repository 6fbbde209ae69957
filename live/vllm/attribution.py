"""Who sends a request, as the client says it in `vllm_xargs` (OpenAI API) or `SamplingParams.extra_args`.

| key | value |
|---|---|
| `wf_id` | the workflow: a whole number, or a text |
| `agent` | who runs the stage: a name or a number of the host's `agents` |
| `stage` | the stage's index in the client's trace |
| `wf_finished` | 1: no further request of the workflow will come after this one |
| `forecast` | next-agent distribution, K rows of agents + 1 probabilities (END last), one after the other |

What is missing or makes no sense is -1 or None: a request is served whatever it says about itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.views import Access

_NAMED_FROM = 1_000_000_000
_INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Attribution:
    """One request's sender; `forecast` is float32[K, agents + 1] or None."""

    workflow: int = -1
    stage: int = -1
    agent: int = -1
    finished: bool = False
    forecast: NDArray[np.float32] | None = None

    def access(self, now_ns: int) -> Access:
        """Return the access of this request at a time."""
        return Access(now_ns, self.workflow, self.stage, self.agent)


class AttributionReader:
    """Reads attributions. Mutated by `read`: workflows with names are numbered as they come.

    complain   gets one line for the first value of each key that makes no sense
    """

    def __init__(self, agents: tuple[str, ...], complain: Callable[[str], None]) -> None:
        self._agents = {name: i for i, name in enumerate(agents)}
        self._workflows: dict[str, int] = {}
        self._complain = complain
        self._complained: set[str] = set()

    def read(self, given: Mapping[str, Any] | None) -> Attribution:
        """Return who sends a request with these extra arguments."""
        if not given:
            return Attribution()
        return Attribution(
            workflow=self._workflow(given.get("wf_id")),
            stage=self._number("stage", given.get("stage"), _INT32_MAX),
            agent=self._agent(given.get("agent")),
            finished=self._number("wf_finished", given.get("wf_finished"), 1) == 1,
            forecast=self._forecast(given.get("forecast")),
        )

    def _workflow(self, given: object) -> int:
        if isinstance(given, str):
            return self._workflows.setdefault(given, _NAMED_FROM + len(self._workflows))
        return self._number("wf_id", given, _NAMED_FROM - 1)

    def _agent(self, given: object) -> int:
        if isinstance(given, str):
            known = self._agents.get(given, -1)
            if known < 0:
                self._odd(
                    "agent", given, f"one of {', '.join(self._agents) or '(none: the host has no agents)'}"
                )
            return known
        return self._number("agent", given, len(self._agents) - 1)

    def _number(self, key: str, given: object, highest: int) -> int:
        if given is None:
            return -1
        if isinstance(given, int | float) and given == int(given) and 0 <= given <= highest:
            return int(given)
        self._odd(key, given, f"a whole number from 0 to {highest}")
        return -1

    def _forecast(self, given: object) -> NDArray[np.float32] | None:
        if given is None:
            return None
        width = len(self._agents) + 1
        try:
            rows = np.array(given, dtype=np.float32).reshape(-1, width)
        except (TypeError, ValueError):
            rows = np.zeros((0, width), np.float32)
        sound = len(rows) > 0 and bool(np.all(np.isfinite(rows)) and np.all(rows >= 0))
        if sound and bool(np.all(np.abs(rows.sum(axis=1) - 1) < 1e-3)):
            return rows
        self._odd("forecast", given, f"rows of {width} probabilities that sum to 1, one after the other")
        return None

    def _odd(self, key: str, given: object, allowed: str) -> None:
        if key not in self._complained:
            self._complained.add(key)
            self._complain(f"extra argument {key!r}: got {str(given)[:60]!r}, allowed: {allowed}; left out")
