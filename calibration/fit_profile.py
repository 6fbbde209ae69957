"""From measured rows of one engine on one GPU (group) to its profile: prices, error, posterior, bands.

Errors and bands are of rows that the judged fit had not seen (five folds, and one fold of the largest steps for what
lies out of range). The posterior resamples the rows and the prior together: a parameter that the rows do not decide
keeps the prior's width.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration import conformal
from calibration import constants as data
from calibration.engine_draws import overhead_draw
from calibration.errors import worst
from calibration.fit import Estimate, Prior, default_prior, fit, reweighted, spread_of_fit
from calibration.fit_terms import NAMES, PLAIN, Floats, Terms, price, split, terms, vector
from calibration.fit_verify import regime
from calibration.form import price as priced
from calibration.gpus import Gpu
from calibration.knots import KNOT_TOKENS
from calibration.models import Shard
from calibration.posterior import posterior
from calibration.rows import StepRows
from calibration.stats import absolute_error
from policies.costs import Profile
from traces import draws as keyed
from traces import portable
from traces.errors import InputError

DRAWS, FOLDS, FEWEST_ROWS = 50, 5, 10
_SEED = 0


@dataclass(frozen=True)
class Target:
    """What was measured."""

    shard: Shard
    gpu: Gpu
    precision: str
    engine: str = "vllm"


def prior_of(target: Target) -> Prior:
    """Return the prior of a target: its GPU's constants, twice as wide where they are another GPU's."""
    key = data.constants_key(target.gpu, target.precision)
    own = bool(target.gpu.tables) and key.startswith(target.gpu.tables) and not target.shard.model.experts
    mean = vector(data.constants(key, target.shard.tp), data.overhead())
    return default_prior(mean, widen=1.0 if own else 2.0)


def fit_profile(rows: StepRows, target: Target, provenance: dict[str, Any]) -> Profile:
    """Return the profile that measured rows give; raises InputError where there are fewer than ten rows with work."""
    prior = prior_of(target)
    working = rows.kind != "idle"
    if int(working.sum()) < FEWEST_ROWS:
        raise InputError(f"{int(working.sum())} rows with work: a fit needs at least {FEWEST_ROWS}")
    found = regime(rows, target.shard, target.gpu, target.precision, prior)
    t = terms(rows, target.shard, target.gpu, target.precision, found.read_factor)
    estimate = fit(t, prior)
    inside, outside = held_out(rows, t, prior)
    base = _priced(estimate.x, target, rows, None)
    drawn = [_priced(x, target, rows, i) for i, x in enumerate(bootstrap(estimate, len(t)))]
    by_kind = {k: absolute_error(1 / v - 1) for k, v in inside.items() if k != "idle"}
    source = f"bootstrap of {len(rows)} rows and of the prior"
    if not (rows.scope != "kernel").any():
        source += "; engine overhead was not measured: varied as public engines differ"
    how = f"five folds of {len(rows)} rows; out of range: the largest steps, fitted on the others"
    context = np.maximum(rows.context_tokens, rows.prefix_tokens)
    limits = {"tokens": int(rows.tokens.max()), "context_tokens": int(context.max())}
    return replace(
        base,
        verify=found.verify,
        posterior=posterior(base, drawn, source),
        bands=conformal.bands(_busy(inside), _busy(outside), limits, how),
        error={
            **worst(by_kind),
            "how": f"step time on rows that were not fitted: {how}",
            "by_kind": by_kind,
            "noise_percent": round(100 * estimate.noise, 2),
        },
        provenance={**base.provenance, **provenance, "constants": _constants(estimate, target)},
    )


def bootstrap(e: Estimate, rows: int, count: int = DRAWS, seed: int = _SEED) -> Iterable[Floats]:
    """Yield `count` draws of the parameters, float64[20]: rows reweighted, the prior's mean moved."""
    wider = spread_of_fit(e)  # residuals are smaller than errors: they would give too narrow a bootstrap
    for b in range(count):
        ids = np.arange(rows, dtype=np.int64)
        weights = portable.exponential(seed, "fit rows", np.full_like(ids, b), ids)
        terms_of_prior = np.arange(len(NAMES), dtype=np.int64)
        normal = portable.normal(seed, "fit prior", np.full_like(terms_of_prior, b), terms_of_prior)
        yield reweighted(e, 1 + wider * (weights / weights.mean() - 1), e.prior.width * normal)


def held_out(rows: StepRows, t: Terms, prior: Prior) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return measured / predicted of rows not fitted, by kind: (five folds, the largest steps)."""
    ids = np.arange(len(t), dtype=np.int64)
    # Folds of one size: ranks of keyed draws.
    order = np.argsort(keyed.uniform_array(_SEED, "fold", ids), kind="stable")
    fold = np.empty(len(t), dtype=np.int64)
    fold[order] = np.arange(len(t)) % FOLDS
    inside = np.ones(len(t))
    for f in range(FOLDS):
        x = fit(t.where(fold != f), prior).x
        inside[fold == f] = (t.seconds / price(x, t)[0])[fold == f]
    far = _far(rows)
    outside = np.ones(0)
    if 0 < far.sum() <= len(t) - FEWEST_ROWS:
        outside = (t.seconds / price(fit(t.where(~far), prior).x, t)[0])[far]
    kinds = [str(k) for k in np.unique(rows.kind)]
    return (
        {k: inside[rows.kind == k] for k in kinds},
        {k: outside[rows.kind[far] == k] for k in kinds} if outside.size else {},
    )


def _far(rows: StepRows) -> NDArray[np.bool_]:
    """The steps beyond three quarters of the tokens or the context measured, by rank."""
    context = np.maximum(rows.context_tokens, rows.prefix_tokens)
    tokens = rows.tokens
    return np.asarray((tokens > np.quantile(tokens, 0.85)) | (context > np.quantile(context, 0.85)))


def _priced(x: Floats, target: Target, rows: StepRows, draw: int | None) -> Profile:
    constants, overhead, http_us = split(x, "fit")
    if not (rows.scope != "kernel").any():
        overhead = data.overhead() if draw is None else overhead_draw(draw)
    client = bool((rows.scope == "client").any())
    return priced(
        target.shard, target.gpu, target.precision, constants, overhead, timing="measured", engine=target.engine,
        provenance={}, error={}, http_us=http_us if client else 0.0,
        tokens=None if draw is None else KNOT_TOKENS,
    )  # fmt: skip


def _constants(e: Estimate, target: Target) -> dict[str, Any]:
    """The fitted parameters beside their prior, for the reader."""
    plain = np.array([name in PLAIN for name in NAMES])
    fitted, before = (np.where(plain, v, np.exp(np.where(plain, 0.0, v))) for v in (e.x, e.prior.mean))
    return {
        name: {"fitted": round(float(a), 4), "prior": round(float(b), 4)}
        for name, a, b in zip(NAMES, fitted, before, strict=True)
    }


def _busy(parts: dict[str, Floats]) -> dict[str, Floats]:
    return {k: v for k, v in parts.items() if k != "idle"}
