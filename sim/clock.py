"""The clock: integer picoseconds inside the simulator, integer nanoseconds in the log.

Rounding each step to nanoseconds would make fast-forwarding inexact: a decode step costs tens of nanoseconds
more for each context token, so the sum of a stretch must be a polynomial in integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import simpy

PS_PER_NS = 1_000
PS_PER_S = 1_000_000_000_000

# Priorities of events at one instant, lower first: what arrives is seen by the step that begins at that
# instant, every replica ends its step before any replica plans its next one, and replicas go in order. Ties
# therefore never depend on the order of the code, nor on whether steps were fast-forwarded.
PRIORITY_ARRIVAL = 0
PRIORITY_STEP_END = 10
PRIORITY_PLAN = 1_000_000

if TYPE_CHECKING:

    class Clock(simpy.Environment):
        """SimPy's environment on an integer clock: every delay given is an integer, so `now` is one."""

        @property
        def now(self) -> int:
            """Return the time in ps."""
            ...

        def schedule(self, event: simpy.Event, priority: int = 1, delay: float = 0) -> None:
            """Queue an event `delay` ps from now."""
            ...

else:
    Clock = simpy.Environment  # typing must not cost a call at each step


def call_after(
    env: Clock, delay_ps: int, priority: int, callback: Callable[[simpy.Event], None]
) -> simpy.Event:
    """Queue `callback` in `delay_ps`, before what has a higher priority number at that instant; return its event."""
    event = simpy.Event(env)
    event._ok = True
    event._value = None
    event.callbacks.append(callback)
    env.schedule(event, priority, delay_ps)
    return event
