"""A measured run through the simulator, request against request."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibration.predict import tables_of
from calibration.predict_latency import Latencies, request_latencies
from calibration.predict_serving import Serving, served
from calibration.runs import MeasuredRun
from calibration.stats import absolute_error
from policies.costs import Profile
from sim.config import EngineConfig
from traces.errors import InputError
from traces.metrics import FINISHED
from traces.runlog import from_tables

Floats = NDArray[np.float64]
_MIN_ROWS = 5


def replay(
    run: MeasuredRun, profile: Profile, engine: EngineConfig, how: Serving, *, seed: int = 0
) -> tuple[Latencies, float]:
    """Return the latencies of the run's requests in its order, and tokens a second.

    Requests that the engine refuses are nan. Raises InputError where the run cannot be replayed, or most of it is
    refused.
    """
    priced, _ = served(profile, how)
    workload, load = run.replay()
    tables, _, _ = tables_of(priced, workload, engine, load, seed=seed)
    log = from_tables(tables)
    seen = request_latencies(log, priced, how)
    order = np.argsort(seen.stage, kind="stable")
    finished, released, tokens, status = log.columns(
        "requests", "finished_ns", "released_ns", "output_tokens", "status"
    )
    done = status == FINISHED
    if 2 * int(done.sum()) < len(run):
        raise InputError(
            f"{run.name}: {len(run) - int(done.sum())} of {len(run)} requests are refused by the engine options"
        )
    rate = float(tokens[done].sum() / (finished[done].max() - released.min()) * 1e9)
    return Latencies(seen.stage[order], seen.ttft_ms[order], seen.tpot_ms[order], seen.e2e_ms[order]), rate


def compare(
    run: MeasuredRun, seen: Latencies, mask: NDArray[np.bool_] | None = None
) -> dict[str, dict[str, float | int]]:
    """Return errors of the replay over the requests that bool[N] keeps, by latency: each request, and the mean.

    `mape_percent`, `p95_percent`, `bias_percent` are per request; `mean_error_percent` is that of the mean,
    `median_error_percent` and `p99_error_percent` those of the percentiles. Where a client did not record
    arrivals, requests cannot be told apart and only the last three mean anything.
    """
    keep = np.ones(len(run), dtype=bool) if mask is None else mask
    out: dict[str, dict[str, float | int]] = {}
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        measured, predicted = getattr(run, name)[keep], getattr(seen, name)[keep]
        both = np.isfinite(measured) & np.isfinite(predicted) & (measured > 0)
        if both.sum() < _MIN_ROWS:
            continue
        m, p = measured[both], predicted[both]
        out[name] = {
            **absolute_error(p / m - 1),
            "mean_error_percent": _percent(float(p.mean()), float(m.mean())),
            "median_error_percent": _percent(float(np.median(p)), float(np.median(m))),
            "p99_error_percent": _percent(float(np.quantile(p, 0.99)), float(np.quantile(m, 0.99))),
        }
    return out


def _percent(predicted: float, measured: float) -> float:
    return round(100 * (predicted / measured - 1), 1)
