"""Fits the step-cost form to measured steps: robust, shrunk to what is known beforehand, kept monotone.

The residual of a step is ln(predicted / measured). Heavy tails (an interrupted step, a wrong row) are met by
Student-t weights. Every parameter is pulled to its prior (the GPU's constants) as strongly as the noise of the rows
and the width of the prior say, which is ridge regression: with few rows the fit stays at the defaults, with many
it leaves them. A fall of the token curve is a residual too, so the knots stay monotone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit_terms import FIRST_KNOT, LOGS, NAMES, PLAIN, Floats, Terms, price
from calibration.knots import KNOT_TOKENS, hat

# Widths of the priors: factors differ by tens of percent between models on one GPU, the knots by a few.
_LOG_WIDTH = {"weights": 0.15, "flops": 0.2, "kv": 0.15, "attention": 0.25, "power": 0.35, "reduce": 0.4}
_PLAIN_WIDTH = {
    "layer_us": 25.0,
    "seq_us": 3.0,
    "engine_us": 500.0,
    "engine_seq_us": 20.0,
    "client_us": 3000.0,
}
_KNOT_WIDTH = 0.05
_TAIL = 4.0  # degrees of freedom of the Student-t weights
_NOISE_START, _NOISE_FLOOR = 0.03, 0.003
_MONOTONE = 0.002  # a fall of the token curve by this share counts as one deviation
_LOG_REACH = 1.6  # a factor stays within e^±1.6 of its prior


@dataclass(frozen=True)
class Prior:
    """Means and deviations of the parameters, float64[20] each (`fit_terms.NAMES`)."""

    mean: Floats
    width: Floats


@dataclass(frozen=True)
class Estimate:
    """A fit: parameters float64[20], relative noise of a row, and what the bootstrap needs at the optimum.

    residuals float64[N] are ln(predicted / measured), slopes float64[N, 20] their derivatives, weights float64[N]
    the Student-t weights.
    """

    x: Floats
    noise: float
    prior: Prior
    residuals: Floats
    slopes: Floats
    weights: Floats


def default_prior(mean: Floats, *, widen: float = 1.0) -> Prior:
    """Return the prior around known constants, float64[20]; `widen` multiplies its widths (a datasheet alone: 2)."""
    widths = [*_LOG_WIDTH.values(), *_PLAIN_WIDTH.values(), *([_KNOT_WIDTH] * len(KNOT_TOKENS))]
    return Prior(mean, widen * np.array(widths))


def fit(t: Terms, prior: Prior, *, iterations: int = 40) -> Estimate:
    """Return the most probable parameters for the measured steps `t` (at least one)."""
    ladder = _ladder(t)
    x, noise = prior.mean.copy(), _NOISE_START
    best = _state(x, t, noise, prior)
    damping = 1e-3
    for i in range(iterations):
        step = _step(best, ladder, damping)
        moved = _clipped(best.x + step, prior)
        trial = _state(moved, t, noise, prior)
        if _loss(trial, ladder) <= _loss(best, ladder):
            best, damping = trial, max(damping / 5, 1e-9)
            if float(np.max(np.abs(step) / prior.width)) < 1e-4 and i > 5:
                break
        else:
            damping *= 10
            if damping > 1e6:
                break
        if i in (3, 6, 10):
            noise = _noise(best)
            best = _state(best.x, t, noise, prior)
    return best


def reweighted(e: Estimate, row_weights: Floats, prior_shift: Floats) -> Floats:
    """Return the parameters, float64[20], if row i counted `row_weights[i]` times and the prior's mean lay
    `prior_shift`, float64[20], higher: one Gauss-Newton step from the optimum."""
    w = e.weights * row_weights / e.noise**2
    ridge = 1 / e.prior.width**2
    # The curvature of the Student-t loss, which is less than its weight says: an outlier holds nothing in place.
    square = (e.residuals / e.noise) ** 2 / _TAIL
    curvature = w * np.maximum((1 - square) / (1 + square), 0.0)
    normal = (e.slopes * curvature[:, None]).T @ e.slopes + np.diag(ridge)
    pull = e.slopes.T @ (w * e.residuals) + ridge * (e.x - e.prior.mean - prior_shift)
    return _clipped(e.x - np.linalg.solve(normal, pull), e.prior)


def _state(x: Floats, t: Terms, noise: float, prior: Prior) -> Estimate:
    seconds, slopes = price(x, t)
    residuals = np.log(seconds / t.seconds)
    weights = (_TAIL + 1) / (_TAIL + (residuals / noise) ** 2)
    return Estimate(x, noise, prior, residuals, slopes / seconds[:, None], weights)


def _loss(e: Estimate, ladder: Terms) -> float:
    tails = (_TAIL + 1) * np.log1p((e.residuals / e.noise) ** 2 / _TAIL)
    pulls = ((e.x - e.prior.mean) / e.prior.width) ** 2
    falls, _ = _falls(e.x, ladder)
    return float(tails.sum() + pulls.sum() + (falls**2).sum())


def _step(e: Estimate, ladder: Terms, damping: float) -> Floats:
    w = e.weights / e.noise**2
    ridge = 1 / e.prior.width**2
    falls, fall_slopes = _falls(e.x, ladder)
    normal = (e.slopes * w[:, None]).T @ e.slopes + fall_slopes.T @ fall_slopes + np.diag(ridge)
    pull = e.slopes.T @ (w * e.residuals) + fall_slopes.T @ falls + ridge * (e.x - e.prior.mean)
    normal = normal + damping * np.diag(np.diag(normal))
    # A parameter at its bound that is pulled further out stays there.
    free = ~((e.x <= 0) & (pull > 0) & _plain())
    step = np.zeros_like(pull)
    step[free] = -np.linalg.solve(normal[np.ix_(free, free)], pull[free])
    return step


def falls(x: Floats, t: Terms) -> bool:
    """Whether the token curve of parameters `x`, float64[20], falls between two knots for the shards of `t`."""
    return bool((_falls(x, _ladder(t))[0] > 0).any())


def _ladder(t: Terms) -> Terms:
    """The token-dependent part of the largest reads in `t` at the knots: where a fall would show."""
    i = int(np.argmax(t.reads))
    n = np.array(KNOT_TOKENS, dtype=np.float64)
    one = t.where(np.full(n.size, i))
    per_token = t.multiplies[i] / max(_tokens(t.hats[i]), 1.0)
    zero = np.zeros(n.size)
    return replace(
        one, multiplies=per_token * n, hats=hat(n), kv=zero, attention=zero, prefix=zero, seqs=zero, engine=zero,
        client=zero, reduce=zero,
    )  # fmt: skip


def _tokens(hats: Floats) -> float:
    return float(np.exp(hats @ np.log(np.array(KNOT_TOKENS, dtype=np.float64))))


def _falls(x: Floats, ladder: Terms) -> tuple[Floats, Floats]:
    seconds, slopes = price(x, ladder)
    logs, log_slopes = np.log(seconds), slopes / seconds[:, None]
    fall = (logs[:-1] - logs[1:]) / _MONOTONE
    down = fall > 0
    return np.where(down, fall, 0.0), np.where(
        down[:, None], log_slopes[:-1] - log_slopes[1:], 0.0
    ) / _MONOTONE


def decided(e: Estimate) -> float:
    """Return how many parameters the rows decide rather than the prior: 0 to 20, the trace of the hat matrix."""
    w = e.weights / e.noise**2
    information = (e.slopes * w[:, None]).T @ e.slopes
    return float(np.trace(np.linalg.solve(information + np.diag(1 / e.prior.width**2), information)))


def spread_of_fit(e: Estimate) -> float:
    """Return how much larger the errors of new rows are than the residuals: sqrt(N / (N - decided)), at most 2."""
    n = e.residuals.size
    return float(np.sqrt(n / max(n - decided(e), n / 4)))


def _noise(e: Estimate) -> float:
    """Scale of the bulk of the residuals, outliers left out of account, corrected for the parameters they decided."""
    return max(1.4826 * float(np.median(np.abs(e.residuals))) * spread_of_fit(e), _NOISE_FLOOR)


def _clipped(x: Floats, prior: Prior) -> Floats:
    low, high = np.full(x.size, -np.inf), np.full(x.size, np.inf)
    low[: len(LOGS)] = prior.mean[: len(LOGS)] - _LOG_REACH
    high[: len(LOGS)] = prior.mean[: len(LOGS)] + _LOG_REACH
    power = LOGS.index("power")
    low[power], high[power] = 0.0, np.log(6.0)  # between a sum and nearly a hard maximum
    low[len(LOGS) : FIRST_KNOT] = 0.0
    low[FIRST_KNOT:], high[FIRST_KNOT:] = -0.7, 0.7
    return np.clip(x, low, high)


def _plain() -> NDArray[np.bool_]:
    return np.array([name in PLAIN for name in NAMES])
