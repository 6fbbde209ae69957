"""Which part of a run a metric looks at: all, or its steady state (MSER-5 truncation, drain removed)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from traces.errors import InputError, nearest
from traces.runlog import RunLog
from traces.tables import REQUEST_STATUS

WINDOWS = ("full", "steady")
BATCH = 5
MIN_BATCHES = 10
FINISHED = REQUEST_STATUS.index("finished")


@dataclass(frozen=True)
class Window:
    """Half-open time span [start_ns, end_ns); `reliable` is False where no steady state was found."""

    name: str
    start_ns: int
    end_ns: int
    reliable: bool = True

    @property
    def seconds(self) -> float:
        """Length in seconds, 0 for an empty window."""
        return max(self.end_ns - self.start_ns, 0) / 1e9

    def holds(self, time_ns: NDArray[Any]) -> NDArray[np.bool_]:
        """Return where `time_ns` (int64[N]) lies inside; "full" holds everything that happened."""
        if self.name == "full":
            return np.asarray(time_ns >= 0)
        return np.asarray((time_ns >= self.start_ns) & (time_ns < self.end_ns))


@dataclass(frozen=True)
class Truncation:
    """`index`: first observation to keep. `reliable`: a minimum was found before half of the series."""

    index: int
    reliable: bool


def mser5(values: ArrayLike) -> Truncation:
    """Return where the warm-up of `values` (float[N], in time order) ends.

    Batches of five are averaged; the cut minimises the marginal standard error, the sum of squared deviations
    of what is kept over the square of its number (White 1997; White, Cobb and Spratt 2000), among the cuts in
    the first half. A minimum at the last allowed cut, or fewer than ten batches, is not to be relied on.
    """
    x = np.asarray(values, dtype=np.float64)
    k = len(x) // BATCH
    if k < MIN_BATCHES:
        return Truncation(0, False)
    means = x[: k * BATCH].reshape(k, BATCH).mean(axis=1)
    means = means - means.mean()  # keeps the difference of squares below from cancelling
    kept = np.arange(k, 0, -1, dtype=np.float64)
    total = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means * means)[::-1])[::-1]
    error = np.maximum(squares - total * total / kept, 0.0) / (kept * kept)
    last = k // 2
    cut = int(np.argmin(error[: last + 1]))
    return Truncation(cut * BATCH, cut < last)


def full_window(log: RunLog) -> Window:
    """Return the span from the first arrival (or release) to the last thing that happened."""
    start, end = log.columns("steps", "start_ns", "duration_ns")
    arrival, done = log.columns("workflows", "arrival_ns", "finished_ns")
    released, finished = log.columns("requests", "released_ns", "finished_ns")
    first = [int(c[c >= 0].min()) for c in (arrival, released) if np.any(c >= 0)]
    if not first and len(start):
        first = [int(start.min())]
    last = [int(c.max()) for c in (start + end, done, finished, released) if len(c)]
    begin = min(first, default=0)
    return Window("full", begin, max([begin, *last]))


def steady_window(log: RunLog) -> Window:
    """Return the steady state: after the warm-up, before the last workflow starts and the load begins to
    drain.

    The warm-up ends at the later of two MSER-5 cuts, both over requests in order of release: of end-to-end
    latency and of the share of the prompt found in HBM (a cache warms up on another clock than a queue).
    Empty and not reliable where fewer than fifty finished requests were released before the drain.
    """
    started = log.column("workflows", "started_ns")
    released, finished, status = log.columns("requests", "released_ns", "finished_ns", "status")
    drain = int(started.max()) if len(started) else -1
    kept = np.flatnonzero((status == FINISHED) & (released < drain))
    kept = kept[np.argsort(released[kept], kind="stable")]
    if len(kept) < BATCH * MIN_BATCHES:
        return Window("steady", max(drain, 0), max(drain, 0), False)
    hit, prompt = log.columns("requests", "gpu_hit_tokens", "prompt_tokens")
    latency = mser5((finished[kept] - released[kept]) / 1e6)
    cache = mser5(hit[kept] / np.maximum(prompt[kept], 1))
    start = int(released[kept[max(latency.index, cache.index)]])
    return Window("steady", start, drain, latency.reliable and cache.reliable)


def window_of(log: RunLog, window: str | Window) -> Window:
    """Return the window called "full" or "steady", or `window` itself; InputError for another name."""
    if isinstance(window, Window):
        return window
    if window not in WINDOWS:
        raise InputError(nearest(window, WINDOWS, what="window"))
    return full_window(log) if window == "full" else steady_window(log)
