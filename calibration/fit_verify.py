"""Which regime of verification attention measured rows show, and its parameter.

Both regimes multiply the KV reads of a decode step (policies.costs.Profile.verify_read_tokens). Each is fitted with
the kernels' other prices held fixed; the one with the smaller robust error names the profile's regime, and the other
one's parameter is kept beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.fit import Prior, fit
from calibration.fit_terms import Floats, price, terms
from calibration.gpus import Gpu
from calibration.models import Shard
from calibration.rows import Ints, StepRows
from calibration.stats import absolute_error
from calibration.verification import verify_prior

PACKED_ROWS = (16, 32, 64, 128, 256)
_GROWTH = range(0, 1501, 10)


@dataclass(frozen=True)
class Regime:
    """The `verify` object for a profile, and KV read factors of every row, float64[N]."""

    verify: dict[str, Any]
    read_factor: Floats


def read_factor(verify: dict[str, Any], queries: Ints) -> Floats:
    """Return how often KV is read, float64[N], for int64[N] queries a sequence."""
    if verify["regime"] == "packed":
        return np.asarray(np.ceil(queries * verify["group"] / verify["packed_rows"]), dtype=np.float64)
    return np.asarray(1 + verify["growth_permille"] / 1000 * (queries - 1), dtype=np.float64)


def regime(rows: StepRows, shard: Shard, gpu: Gpu, precision: str, prior: Prior) -> Regime:
    """Return the regime that fits the verify rows of `rows` best; without any, the assumed one."""
    base = verify_prior(shard)
    ones = np.ones(len(rows))
    verifies = rows.kind == "verify"
    several = verifies & (rows.new_tokens > 1) & (rows.context_tokens > 0)
    if not several.any():
        return Regime(base, ones)
    known = rows.where(~several)
    x = fit(terms(known, shard, gpu, precision), prior).x if len(known) else prior.mean
    asked = rows.where(several)
    best: dict[str, tuple[float, dict[str, Any]]] = {}
    candidates = [{**base, "regime": "packed", "packed_rows": n} for n in PACKED_ROWS]
    candidates += [{**base, "regime": "prefill", "growth_permille": g} for g in _GROWTH]
    for candidate in candidates:
        t = terms(asked, shard, gpu, precision, read_factor(candidate, asked.new_tokens))
        loss = float(np.median(np.abs(np.log(price(x, t)[0] / t.seconds))))
        name = str(candidate["regime"])
        if name not in best or loss < best[name][0]:
            best[name] = (loss, candidate)
    winner = min(best, key=lambda name: best[name][0])
    errors = {}
    for name, (_, candidate) in best.items():
        t = terms(asked, shard, gpu, precision, read_factor(candidate, asked.new_tokens))
        errors[name] = absolute_error(price(x, t)[0] / t.seconds - 1)
    verify = {
        **base,
        "regime": winner,
        "packed_rows": best["packed"][1]["packed_rows"],
        "growth_permille": best["prefill"][1]["growth_permille"],
        "source": f"{len(asked)} measured steps of kind verify; error by regime in percent",
        "errors": errors,
    }
    factor = np.where(several, read_factor(verify, rows.new_tokens), 1.0)
    return Regime(verify, np.asarray(factor, dtype=np.float64))
