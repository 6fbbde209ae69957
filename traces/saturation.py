"""Warnings a reader of results must see: a queue that grows, a server that is always busy, no steady state.

Conservative on purpose: a warning says that an average depends on how long the run was, so it must not cry
wolf.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.runlog import RunLog
from traces.tables import REQUEST_STATUS
from traces.windows import full_window, steady_window

BATCHES = 20
MIN_REQUESTS = 10 * BATCHES
# One-sided 0.1 % of the Mann-Kendall statistic, and a queue that lengthens by at least this share of the
# time.
Z_LIMIT = 3.09
GROWTH_LIMIT = 0.01
# An engine that batches is always busy long before it is full: somebody must wait, too, more often than not.
BUSY_LIMIT = 0.98
WAITING_LIMIT = 0.5


def warnings(log: RunLog) -> list[str]:
    """Return one line for each reason to distrust averages of this run; empty when there is none."""
    out = []
    status = log.column("requests", "status")
    unfinished = int(np.count_nonzero(status == REQUEST_STATUS.index("incomplete")))
    if unfinished:
        out.append(f"{unfinished} of {len(status)} requests were incomplete when the run ended")
    refused = int(np.count_nonzero(status == REQUEST_STATUS.index("rejected")))
    if refused:
        out.append(f"{refused} of {len(status)} requests were rejected")
    finished = log.column("workflows", "finished_ns")
    if open_still := int(np.count_nonzero(finished < 0)):
        never = int(unissued(log).sum())
        out.append(
            f"{open_still} of {len(finished)} workflows did not finish; {never} of their requests were never issued"
        )
    growth = queue_growth(log)
    if growth > 0:
        out.append(
            f"saturated: the queue grew over the run, waiting lengthened by {growth:.3f} s a second; "
            "averages depend on the length of the run"
        )
    if is_open_loop(log):
        busy, waiting = arrivals_utilisation(log), waiting_share(log)
        if busy > BUSY_LIMIT and waiting > WAITING_LIMIT:
            out.append(
                f"saturated: busy {busy:.1%} of the time while workflows arrived, and {waiting:.0%} of the requests "
                "waited for more than a step"
            )
    if not steady_window(log).reliable:
        out.append("no steady state was found: steady-state figures are missing or still in the warm-up")
    return out


def unissued(log: RunLog) -> NDArray[np.int64]:
    """Return int64[workflows], in the order of the log: requests that were never released.

    A finished workflow has none: what it did not issue was served from a stored result. Of an unfinished one
    they are its requests less its rows in `requests` and less what reuse served it.
    """
    workflow, requests, finished = log.columns("workflows", "workflow", "requests", "finished_ns")
    left = np.where(finished < 0, requests, 0).astype(np.int64)
    if not left.any():
        return left
    seen = log.column("requests", "workflow")
    if log.rows("decisions"):
        reused = log.select("decisions", "family", "reuse") & log.select("decisions", "action", "served")
        seen = np.concatenate([seen, log.column("decisions", "workflow")[reused]])
    ids, counts = np.unique(seen, return_counts=True)
    at = np.searchsorted(ids, workflow)
    known = at < len(ids)
    known[known] = ids[at[known]] == workflow[known]
    left[known] -= counts[at[known]]
    return np.maximum(left, 0)


def queue_growth(log: RunLog) -> float:
    """Return by how much waiting lengthens per unit of time, 0 where it does not surely grow.

    Requests released while workflows still arrived, in order of release, in 20 batches. Growth needs a rising
    trend (Mann-Kendall at 0.1 %), a second half that waits more than twice as long as the first, and a slope
    of at least 1 %. A stable queue's wait has slope 0; at offered load rho > 1 the slope tends to 1 - 1/rho.
    """
    released, admitted = log.columns("requests", "released_ns", "admitted_ns")
    started = log.column("workflows", "started_ns")
    last = int(started.max()) if len(started) else 0
    at = np.flatnonzero((admitted >= 0) & (released <= last))
    if len(at) < MIN_REQUESTS:
        return 0.0
    at = at[np.argsort(released[at], kind="stable")]
    size = len(at) // BATCHES
    at = at[: size * BATCHES]
    wait = ((admitted[at] - released[at]) / 1e9).reshape(BATCHES, size).mean(axis=1)
    time = (released[at] / 1e9).reshape(BATCHES, size).mean(axis=1)
    if mann_kendall_z(wait) <= Z_LIMIT or wait[BATCHES // 2 :].mean() <= 2 * wait[: BATCHES // 2].mean():
        return 0.0
    centred = time - time.mean()
    spread = float(centred @ centred)
    slope = float(centred @ (wait - wait.mean())) / spread if spread > 0 else 0.0
    return slope if slope >= GROWTH_LIMIT else 0.0


def mann_kendall_z(values: NDArray[Any]) -> float:
    """Return the Mann-Kendall trend statistic, standard normal without a trend (no correction for ties).

    >>> import numpy as np
    >>> round(mann_kendall_z(np.arange(20)), 2)
    6.13
    """
    n = len(values)
    if n < 2:
        return 0.0
    s = float(np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)].sum())
    return (s - math.copysign(1, s)) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18) if s else 0.0


def is_open_loop(log: RunLog) -> bool:
    """Say whether workflows arrive by the clock: most later ones start while no other finishes."""
    started, finished = log.columns("workflows", "started_ns", "finished_ns")
    if not len(started):
        return False
    later = started[started > started.min()]
    return len(later) > 0 and bool(np.isin(later, finished).mean() < 0.5)


def waiting_share(log: RunLog) -> float:
    """Return the share of admitted requests that waited for longer than a mean step; 0 without any.

    Less than a step is what everybody waits who comes while one runs.
    """
    released, admitted = log.columns("requests", "released_ns", "admitted_ns")
    step = log.column("steps", "duration_ns")
    wait = (admitted - released)[admitted >= 0]
    return float(np.mean(wait > step.mean())) if len(wait) and len(step) else 0.0


def arrivals_utilisation(log: RunLog) -> float:
    """Return the share of time in steps until the last workflow started; nan without time."""
    start, duration = log.columns("steps", "start_ns", "duration_ns")
    begin, end = full_window(log).start_ns, int(log.column("workflows", "started_ns").max(initial=0))
    if end <= begin:
        return math.nan
    busy = np.maximum(np.minimum(start + duration, end) - np.maximum(start, begin), 0)
    return float(busy.sum()) / ((end - begin) * log.replicas)
