"""Observe, replay, calibrate: a profile's few constants from the first part of a measured run.

Four constants move: one factor on all kernels, the engine's time a step and a sequence, and the client's before the
first token. The first three are found by Gauss-Newton steps on the logarithms of each request's time per token
and end to end, slopes from replays of the whole run; each is held near its prior, so that a run which says
nothing of one leaves it alone. The rest of the run judges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from calibration.predict_latency import Latencies
from calibration.predict_serving import Serving, served, serving
from calibration.runs import MeasuredRun
from calibration.runs_replay import replay
from policies.costs import Profile
from sim.config import EngineConfig
from traces.errors import InputError

Floats = NDArray[np.float64]
STEPS = 3
_PERMILLE = 1000
# Probes of the slopes, bounds, and how far each constant may lie from its prior for a price of one deviation.
_PROBE = np.array([0.03, 100.0, 5.0])
_LOW, _HIGH = np.array([-0.5, 0.0, 0.0]), np.array([0.7, 20_000.0, 500.0])
_PRIOR_DEVIATION = np.array([0.15, 1000.0, 30.0])
_NOISE = 0.05
# Requests share one engine and err together: what they say counts as much as this share of the prior's price.
_PRIOR_SHARE = 0.1
_MAX_HTTP_MS = 1000.0
_MIN_REQUESTS = 20


@dataclass(frozen=True)
class Calibrated:
    """A profile after calibration on a run.

    profile      step prices and overheads calibrated; the client's time is its http_overhead_ps
    how          the engine's habit that remains to be applied on replay
    scheduling   the habit's name
    kernels      factor on the kernels' time
    fitted       bool[N]: requests it was fitted on; the others judge it
    before, after   latencies of the whole run with the given and the calibrated profile
    throughput_before, throughput_after   tokens a second
    """

    profile: Profile
    how: Serving
    scheduling: str
    kernels: float
    fitted: NDArray[np.bool_]
    before: Latencies
    after: Latencies
    throughput_before: float
    throughput_after: float


def calibrate(
    run: MeasuredRun,
    profile: Profile,
    engine: EngineConfig,
    *,
    scheduling: Iterable[str] = ("sync", "async"),
    share: float = 0.5,
) -> Calibrated:
    """Calibrate on the first `share` of the requests; of several habits the one that fits them best.

    Raises InputError where the share holds under 20 requests, or the run cannot be replayed.
    """
    fitted = np.arange(len(run)) < round(share * len(run))
    if not 0.05 <= share <= 0.95 or fitted.sum() < _MIN_REQUESTS:
        raise InputError(
            f"split={share:g}: the first part of {run.name} holds {int(fitted.sum())} of {len(run)} requests; "
            f"expected a share from 0.05 to 0.95 and at least {_MIN_REQUESTS} requests"
        )
    best: tuple[float, Calibrated] | None = None
    for name in scheduling:
        found = _calibrate(run, profile, engine, name, fitted)
        loss = _loss(run, found.after, fitted)
        if best is None or loss < best[0]:
            best = loss, found
    if best is None:
        raise InputError("scheduling: expected at least one of sync, async")
    return best[1]


def adjusted(profile: Profile, kernels: float, step_us: float, seq_us: float, http_ms: float) -> Profile:
    """Return the profile with its kernels scaled and its overheads replaced, in whole numbers."""
    permille = round(kernels * _PERMILLE)

    def scaled(ps: int) -> int:
        return ps * permille // _PERMILLE

    return replace(
        profile,
        linear_ps=tuple(scaled(ps) for ps in profile.linear_ps),
        kv_read_ps_per_token=scaled(profile.kv_read_ps_per_token),
        attention_as_per_pair=scaled(profile.attention_as_per_pair),
        per_seq_ps=scaled(profile.per_seq_ps),
        overhead_ps=round(step_us * 10) * 100_000,
        overhead_per_seq_ps=round(seq_us * 10) * 100_000,
        http_overhead_ps=round(http_ms * 1000) * 1_000_000,
    )


def _calibrate(
    run: MeasuredRun, given: Profile, engine: EngineConfig, name: str, fitted: NDArray[np.bool_]
) -> Calibrated:
    # The habit's prices become the profile's own; what stays of it is how the first token waits.
    base, _ = served(given, serving(name))
    how = Serving(first_token_steps=serving(name).first_token_steps)
    prior = np.array([0.0, base.overhead_ps / 1e6, base.overhead_per_seq_ps / 1e6])
    http_ms = base.http_overhead_ps / 1e9

    def at(x: Floats, http: float) -> Profile:
        return adjusted(base, float(np.exp(x[0])), float(x[1]), float(x[2]), http)

    before, rate_before = replay(run, given, engine, serving("profile"))
    x = prior
    for _ in range(STEPS):
        seen, _ = replay(run, at(x, http_ms), engine, how)
        http_ms = _client_ms(run, seen, fitted, http_ms)
        start = _residuals(run, seen, fitted)
        slopes = np.stack(
            [
                (_residuals(run, replay(run, at(x + probe, http_ms), engine, how)[0], fitted) - start)
                / probe.sum()
                for probe in np.diag(_PROBE)
            ],
            axis=1,
        )
        known = np.isfinite(start) & np.isfinite(slopes).all(axis=1)
        weight = 1 / (_NOISE * np.sqrt(known.sum()))
        rows = np.concatenate([slopes[known] * weight, np.diag(1 / _PRIOR_DEVIATION) * _PRIOR_SHARE])
        wanted = np.concatenate([-start[known] * weight, (prior - x) / _PRIOR_DEVIATION * _PRIOR_SHARE])
        x = x + lsq_linear(rows, wanted, bounds=(_LOW - x - 1e-9, _HIGH - x + 1e-9)).x
    profile = at(x, http_ms)
    after, rate_after = replay(run, profile, engine, how)
    http_ms = _client_ms(run, after, fitted, http_ms)
    profile = at(x, http_ms)
    after, rate_after = replay(run, profile, engine, how)
    return Calibrated(profile, how, name, float(np.exp(x[0])), fitted, before, after, rate_before, rate_after)


def _residuals(run: MeasuredRun, seen: Latencies, fitted: NDArray[np.bool_]) -> Floats:
    """Return log(predicted / measured) of TPOT and E2E, float64[2N]; nan outside the fitted part."""
    out = []
    for name in ("tpot_ms", "e2e_ms"):
        measured, predicted = getattr(run, name), getattr(seen, name)
        usable = fitted & (measured > 0) & (predicted > 0)
        ratio = np.divide(predicted, measured, out=np.ones(len(run)), where=usable)
        # A request far off (a stall of the client, another queue) says little of a step.
        out.append(np.where(usable, np.clip(np.log(ratio), -1.0, 1.0), np.nan))
    return np.concatenate(out)


def _first_tokens(run: MeasuredRun, seen: Latencies, fitted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the fitted requests whose first token hardly queued: the quicker half by the replay, bool[N]."""
    known = fitted & np.isfinite(run.ttft_ms) & (run.ttft_ms > 0) & np.isfinite(seen.ttft_ms)
    if not known.any():
        return known
    return np.asarray(known & (seen.ttft_ms <= np.median(seen.ttft_ms[known])))


def _client_ms(run: MeasuredRun, seen: Latencies, fitted: NDArray[np.bool_], http_ms: float) -> float:
    """Return the client's time: the median of what first tokens take beyond the engine, where none queued."""
    quick = _first_tokens(run, seen, fitted)
    if quick.sum() < _MIN_REQUESTS // 2:
        return http_ms
    return float(np.clip(http_ms + np.median((run.ttft_ms - seen.ttft_ms)[quick]), 0.0, _MAX_HTTP_MS))


def _loss(run: MeasuredRun, seen: Latencies, fitted: NDArray[np.bool_]) -> float:
    """Return the mean absolute log error of tokens and ends, and of first tokens that did not queue."""
    quick = _first_tokens(run, seen, fitted)
    first = np.abs(np.log(seen.ttft_ms[quick] / run.ttft_ms[quick])).mean() if quick.any() else 0.0
    return float(np.nanmean(np.abs(_residuals(run, seen, fitted))) + first)
