"""Simulated ground truth: rows drawn from a known profile with noise, drift and outliers; is it found again?

Each repetition draws the true parameters around the GPU's constants (as one model differs from another), measures
the plan's steps with them, fits, and asks two things. Parameters: does the truth of each price (a decode, a prefill
chunk, a mixed and a large step) lie in the posterior's 90 % interval? Steps: does a new measured step lie in
the conformal interval? Both should hold in 85 to 95 of 100 cases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration import conformal, posterior
from calibration.fit import Prior, falls, fit
from calibration.fit_profile import Target, bootstrap, held_out, prior_of
from calibration.fit_terms import FIRST_KNOT, LOGS, NAMES, Floats, Terms, price, terms
from calibration.gpus import gpu
from calibration.models import model
from calibration.rows import StepRows, from_frame
from traces import draws as keyed
from traces import portable

# Steps whose true price is known and asked for: inside the measured range and beyond it.
PROBES: dict[str, tuple[str, int, int, int, int]] = {
    "decode 48 x 3,000": ("decode", 48, 1, 3000, 0),
    "decode 200 x 700": ("decode", 200, 1, 700, 0),
    "prefill 1,500": ("prefill", 1, 1500, 0, 0),
    "prefill 600 after 9,000": ("prefill", 1, 600, 0, 9000),
    "mixed 768 + 40 x 2,000": ("mixed", 40, 768, 2000, 0),
    "decode 128 x 24,000": ("decode", 128, 1, 24000, 0),
}
_ATTEMPTS = 2000
_PARTS = {
    "decode": [(b, 1, 256, 0) for b in (1, 8, 32, 64, 128, 192, 256)]
    + [(b, 1, c, 0) for b in (1, 8, 64, 256) for c in (4096, 16384)],
    "prefill": [(1, n, 0, 0) for n in (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)]
    + [(1, n, 0, p) for n in (128, 512, 2048) for p in (4096, 16384)],
    "mixed": [(b, n, 1024, 0) for n in (256, 2048) for b in (16, 64, 128)],
}


@dataclass(frozen=True)
class World:
    """How the simulated measurements err: relative deviations, and the share of rows that are wrong by 10 to 60 %."""

    noise: float = 0.02
    drift: float = 0.01
    outliers: float = 0.05


def planned(repeats: int = 2) -> StepRows:
    """Return the plan's decode, prefill and mixed steps, each `repeats` times, without times (1 ns)."""
    columns = ["batch", "new_tokens", "context_tokens", "prefix_tokens"]
    parts = [pd.DataFrame(v, columns=columns).assign(kind=k) for k, v in _PARTS.items()]
    frame = pd.concat(parts * repeats, ignore_index=True).assign(time_ns=1)
    return from_frame(frame, "plan")


def truth(prior: Prior, blank: Terms, repetition: int, seed: int = 0) -> Floats:
    """Return true parameters, float64[20], drawn from the prior: no cost negative, a token curve that never falls."""
    ids = np.arange(len(NAMES), dtype=np.int64)
    power = LOGS.index("power")
    for attempt in range(_ATTEMPTS):
        place = [np.full_like(ids, v) for v in (repetition, attempt)]
        x = prior.mean + prior.width * portable.normal(seed, "truth", *place, ids)
        x[len(LOGS) : FIRST_KNOT] = np.maximum(x[len(LOGS) : FIRST_KNOT], 0.0)
        x[power] = max(x[power], 0.0)
        if not falls(x, blank):
            return x
    raise AssertionError(f"no rising token curve in {_ATTEMPTS} draws")


def measured(rows: StepRows, seconds: Floats, world: World, repetition: int, seed: int = 0) -> StepRows:
    """Return the rows with times in ns as `world` would measure them, in a keyed random order of measurement."""
    ids = np.arange(len(rows), dtype=np.int64)
    r = np.full_like(ids, repetition)
    error = world.noise * portable.normal(seed, "noise", r, ids)
    place = keyed.uniform_array(seed, "order", r, ids)
    error += world.drift * (2 * place - 1)
    wrong = keyed.uniform_array(seed, "outlier", r, ids) < world.outliers
    error += np.where(wrong, 0.1 + 0.5 * keyed.uniform_array(seed, "outlier size", r, ids), 0.0)
    times = np.maximum(np.rint(seconds * portable.exp(error) * 1e9), 1).astype(np.int64)
    return replace(rows, time_ns=times)


def recovery(
    target: Target, repetitions: int = 200, world: World | None = None, seed: int = 0
) -> dict[str, Any]:
    """Return coverage in percent of the posterior's intervals by probe, of the conformal intervals, and errors."""
    world = world or World()
    prior = prior_of(target)
    rows = planned()
    blank = terms(rows, target.shard, target.gpu, target.precision)
    kernel = np.array([not n.startswith(("engine", "client")) for n in NAMES])
    prior = Prior(np.where(kernel, prior.mean, 0.0), prior.width)
    columns = ["kind", "batch", "new_tokens", "context_tokens", "prefix_tokens"]
    probe_rows = from_frame(pd.DataFrame(list(PROBES.values()), columns=columns).assign(time_ns=1), "probes")
    probes = terms(probe_rows, target.shard, target.gpu, target.precision)
    inside: list[NDArray[np.bool_]] = []
    covered: list[bool] = []
    errors: list[Floats] = []
    for i in range(repetitions):
        x = truth(prior, blank, i, seed)
        seen = measured(rows, price(x, blank)[0], world, i, seed)
        t = replace(blank, seconds=seen.time_ns.astype(np.float64) * 1e-9)
        estimate = fit(t, prior)
        wanted, got = price(x, probes)[0], price(estimate.x, probes)[0]
        drawn = np.array([price(b, probes)[0] for b in bootstrap(estimate, len(t), seed=seed + 1)])
        low, high = posterior.interval(drawn)
        inside.append((low <= wanted) & (wanted <= high))
        errors.append(got / wanted - 1)
        again = measured(probe_rows, wanted, world, repetitions + i, seed)
        covered += _conformal(seen, t, prior, got, again)
    share = np.array(inside).mean(axis=0)
    return {
        "repetitions": repetitions,
        "noise_percent": 100 * world.noise,
        "posterior_coverage_percent": {
            name: round(100 * float(s), 1) for name, s in zip(PROBES, share, strict=True)
        },
        "posterior_coverage_mean_percent": round(100 * float(share.mean()), 1),
        "conformal_coverage_percent": round(100 * float(np.mean(covered)), 1),
        "price_error_percent": {
            name: round(100 * float(e), 2)
            for name, e in zip(PROBES, np.abs(np.array(errors)).mean(axis=0), strict=True)
        },
    }


def _conformal(seen: StepRows, t: Terms, prior: Prior, got: Floats, again: StepRows) -> list[bool]:
    near, far = held_out(seen, t, prior)
    context = np.maximum(seen.context_tokens, seen.prefix_tokens)
    limits = {"tokens": int(seen.tokens.max()), "context_tokens": int(context.max())}
    band = conformal.bands(near, far, limits, "")
    out = []
    for i, seconds in enumerate(got):
        reach = int(max(again.context_tokens[i], again.prefix_tokens[i]))
        found = conformal.interval_ps(
            band, str(again.kind[i]), round(seconds * 1e12), int(again.tokens[i]), reach
        )
        assert found is not None
        out.append(found[0] <= int(again.time_ns[i]) * 1000 <= found[1])
    return out


def default_target() -> Target:
    """Return what the study simulates unless told otherwise: Qwen3-8B in bf16 on one H200."""
    return Target(model("Qwen3-8B").shard(1), gpu("H200"), "bf16")
