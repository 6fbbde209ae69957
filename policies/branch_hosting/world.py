"""What a host of the speculation controller must be able to do, in virtual time or in real time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from policies.branch_events import HostLoad
from policies.branch_hosting.fills import EngineColumns, Fill


class Rows(Protocol):
    """Takes rows of the run log (`traces.tables`)."""

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Append a row, in schema order."""


class World(Protocol):
    """Engines, tools and a clock. Nothing here answers at once: results come back through `BranchHost`.

    ticks_per_ns   the clock's resolution: a simulator's is finer than a nanosecond
    """

    ticks_per_ns: int

    def now(self) -> int:
        """Return the time since the start of the run, in ticks."""
        ...

    def later(self, ticks: int, call: Callable[[], None]) -> None:
        """Call `call` after so many ticks, at least 0."""
        ...

    def load(self) -> HostLoad:
        """Return canonical demand as of now."""
        ...

    def resident_tokens(self, stage: int, routing: str) -> int:
        """Return how much of an LLM stage's prompt is in the prefix cache where a fill of it would run, in tokens."""
        ...

    def draft(self, workflow: int, cost_ns: int) -> None:
        """Candidates are being drafted for so long: whatever that takes from the engines, it takes now."""
        ...

    def truth(self, stage: int, rendered: int, reads: tuple[tuple[int, int], ...]) -> int | None:
        """Return what the stage would return for this input and these versions, None where nobody can know."""
        ...

    def run_fill(self, fill: Fill, position: int) -> None:
        """Execute a fill's stage; set its `work` where an engine does it."""
        ...

    def stop_fill(self, fill: Fill, position: int) -> bool:
        """Stop what an engine does for a fill's stage; False where no engine was asked."""
        ...

    def engine_columns(self, work: Any) -> EngineColumns:
        """Return what is known of a request that `run_fill` made."""
        ...

    def execute(self, stage: int) -> None:
        """Execute a canonical stage."""
        ...

    def finish(self, stage: int) -> None:
        """A canonical stage has a result that it did not compute: what follows may start, in `pump`."""
        ...

    def abandon(self, stage: int) -> None:
        """Stop the execution of a canonical stage: a fill was faster."""
        ...

    def pump(self) -> None:
        """Release what became ready at this instant."""
        ...
