"""Time of a run in progress: nanoseconds since its start, and timers of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

NS_PER_S = 1_000_000_000
_LEAVE_S = 5.0


class Clock:
    """The event loop's own clock. `later` mutates; made inside a running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start_s = self._loop.time()
        self._timers: set[asyncio.TimerHandle] = set()

    def now(self) -> int:
        """Return the time since the clock was made, in ns. Does not mutate."""
        return self.at(self._loop.time())

    def at(self, loop_s: float) -> int:
        """Return a time of the event loop as one of this clock, in ns. Does not mutate."""
        return round((loop_s - self._start_s) * NS_PER_S)

    def later(self, delay_ns: int, call: Callable[[], object]) -> Callable[[], None]:
        """Call `call` after so long; return what calls it off."""

        def due() -> None:
            self._timers.discard(timer)
            call()

        def off() -> None:
            self._timers.discard(timer)
            timer.cancel()

        timer = self._loop.call_later(delay_ns / NS_PER_S, due)
        self._timers.add(timer)
        return off

    def stop(self) -> None:
        """Call everything off."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


async def ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait until cancelled tasks have closed their connections, but not for one that nobody answers."""
    left = [task for task in tasks if not task.done()]
    if left:
        await asyncio.wait(left, timeout=_LEAVE_S)


def started(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Return a task whose failure is told to the event loop's handler at once, as a timer's is."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)

    def over(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            loop.call_exception_handler({"message": "a request's task failed", "exception": error})

    task.add_done_callback(over)
    return task
