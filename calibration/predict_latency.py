"""A client's latencies of each request of a run log: what the engine took, and what surrounds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.predict_serving import Serving
from policies.costs import Profile
from traces.metrics import FINISHED
from traces.runlog import RunLog

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Latencies:
    """Per request of the log, float64[requests] in ms; nan where it has none.

    stage     int64[requests]: the request's stage in the workload
    ttft_ms, tpot_ms, e2e_ms   time to first token, time per output token after it, end to end
    """

    stage: NDArray[np.int64]
    ttft_ms: Floats
    tpot_ms: Floats
    e2e_ms: Floats


def request_latencies(log: RunLog, profile: Profile, how: Serving) -> Latencies:
    """Return the latencies, the profile's HTTP constant and the steps lost to asynchronous scheduling added.

    A request that finds the engine at work joins `how.first_token_steps` steps late. The length of such a
    step is its own mean time per token: the steps it decodes in are those that were running about it.
    """
    stage, released, first, finished, tokens, status = log.columns(
        "requests", "stage", "released_ns", "first_token_ns", "finished_ns", "output_tokens", "status"
    )
    nan = np.full(len(stage), np.nan)
    ended = status == FINISHED
    tpot = np.where(ended & (tokens >= 2), (finished - first) / 1e6 / np.maximum(tokens - 1, 1), nan)
    before = profile.http_overhead_ps / 1e9 + how.first_token_steps * np.where(
        _busy(released, finished), np.nan_to_num(tpot), 0.0
    )
    ttft = np.where(first >= 0, (first - released) / 1e6 + before, nan)
    return Latencies(stage, ttft, tpot, np.where(ended, (finished - released) / 1e6 + before, nan))


def _busy(released: NDArray[np.int64], finished: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return, for each request, whether another one released earlier was in progress at its release."""
    ends = np.sort(finished[finished >= 0])
    earlier = np.searchsorted(np.sort(released), released, side="left")
    return np.asarray(earlier > np.searchsorted(ends, released, side="right"))
