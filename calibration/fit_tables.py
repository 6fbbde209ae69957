"""Constants of each GPU and precision, from kernel sums of several models: the default that any model starts from.

Every figure about them is for a model that the fit had not seen (leave one model out): its errors by kind of step,
its conformal band, and how its own constants differ (the effect that the posterior draws from).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration import conformal
from calibration import constants as data
from calibration.fit import Estimate, default_prior, fit, reweighted
from calibration.fit_terms import NAMES, Floats, Terms, joined, price, split, terms, vector
from calibration.gpus import gpu
from calibration.models import model
from calibration.rows import StepRows, from_frame
from calibration.stats import absolute_error
from calibration.verify_curves import verify_curve
from traces import portable

STEPS = data.DATA / "kernel_steps.parquet"
DRAWS = 50
_SEED = 0
_NONE = data.Overhead(0.0, 0.0, "none")
_RANGE = {"tokens": 2048, "context_tokens": 8192}


@dataclass(frozen=True)
class Cluster:
    """The composed steps of one model at one TP size on one GPU."""

    model: str
    tp: int
    rows: StepRows
    terms: Terms


@cache
def table() -> pd.DataFrame:
    """Return the committed kernel sums: gpu, model, precision, tp and the columns of `rows`, time in us."""
    frame = pd.read_parquet(STEPS)
    return frame.assign(time_ns=frame.time_us.astype(np.int64) * 1000)


def keys() -> list[str]:
    """Return the constants keys that have rows, such as "h200_sxm:fp8", sorted."""
    pairs = table()[["gpu", "precision"]].drop_duplicates()
    return sorted(f"{gpu(g).tables}:{p}" for g, p in pairs.itertuples(index=False))


def clusters(key: str) -> list[Cluster]:
    """Return the models and TP sizes measured under one key."""
    tables, precision = key.split(":")
    found = table()
    names = {g: gpu(g).tables for g in found.gpu.unique()}
    found = found[(found.gpu.map(names) == tables) & (found.precision == precision)]
    out = []
    for (g, name, tp), group in found.groupby(["gpu", "model", "tp"], sort=True):
        shard = model(name).shard(int(tp))
        rows = from_frame(group.reset_index(drop=True), STEPS)
        found_terms = terms(rows, shard, gpu(g), precision)
        out.append(Cluster(str(name), int(tp), rows, found_terms))
    return out


def start(key: str) -> Floats:
    """Return the parameters, float64[20], that the fit of `key` is shrunk to: the published defaults."""
    published = data.read("step_cost_defaults")["constants"]
    c = published.get(key) or published[key.split(":")[0] + ":fp8"]
    return vector(data.from_body(c, key), _NONE)


def report() -> dict[str, Any]:
    """Fit every key; return the body of `data/kernel_fit.json`."""
    found = {key: fit_key(key) for key in keys()}
    return {
        "provenance": {
            "rows": "calibration/data/kernel_steps.parquet: kernel sums composed from the tables of "
            "aiconfigurator-core 0.12.0 (Apache-2.0): vLLM 0.24.0 on H200 and H100 SXM, 0.14.0 on A100 SXM",
            "rows_sha256": sha256(STEPS.read_bytes()).hexdigest(),
            "excludes": "engine CPU time",
            "errors": "percent, by model, TP size and kind; the model was left out of the fit that is judged; "
            "kind verify: t(n)/t(1) of the linear layers to 1,024 tokens",
            "command": "python -m calibration build",
        },
        "keys": found,
    }


def fit_key(key: str) -> dict[str, Any]:
    """Return the object of one key in `data/kernel_fit.json`: constants and draws by TP size, errors, bands."""
    parts = clusters(key)
    tables, precision = key.split(":")
    prior = default_prior(start(key), widen=2.0)
    everything = fit(_joined(parts, precision), prior)
    sizes = sorted({c.tp for c in parts})
    of_size = {tp: fit(_joined(_sized(parts, tp), precision), default_prior(everything.x)) for tp in sizes}
    errors: dict[str, Any] = {}
    inside: dict[str, list[Floats]] = {}
    outside: dict[str, list[Floats]] = {}
    effects: dict[int, list[Floats]] = {tp: [] for tp in sizes}
    for name in sorted({c.model for c in parts}):
        others = [c for c in parts if c.model != name]
        pooled = default_prior(fit(_joined(others, precision), prior).x)
        near = default_prior(fit(_joined(others, precision, near=True), prior).x)
        for c in (c for c in parts if c.model == name):
            x = fit(_joined(_sized(others, c.tp), precision), pooled).x
            near_x = fit(_joined(_sized(others, c.tp), precision, near=True), near).x
            ratio = c.terms.seconds / price(x, c.terms)[0]
            far_ratio = c.terms.seconds / price(near_x, c.terms)[0]
            kinds = {str(k): c.rows.kind == k for k in np.unique(c.rows.kind)}
            errors.setdefault(name, {})[str(c.tp)] = {
                k: absolute_error(1 / ratio[mask] - 1) for k, mask in kinds.items()
            }
            for k, mask in kinds.items():
                inside.setdefault(k, []).append(ratio[mask])
                outside.setdefault(k, []).append(far_ratio[mask & ~_near(c.rows)])
            curve = verify_curve(tables, name, precision) if c.tp == 1 else None
            if curve is not None:
                got = price(x, curve.terms(model(name).shard(1), precision))[0]
                errors[name][str(c.tp)]["verify"] = absolute_error(got / got[0] / curve.times_one() - 1)
            effects[c.tp].append(fit(_joined([c], precision), default_prior(x)).x - x)
    limits = {
        "tokens": max(int(c.rows.tokens.max()) for c in parts),
        "context_tokens": max(
            int(np.maximum(c.rows.context_tokens, c.rows.prefix_tokens).max()) for c in parts
        ),
    }
    how = "unseen models of the kernel tables; out of range: steps over 2,048 tokens or 8,192 of context"
    return {
        "noise_percent": round(100 * everything.noise, 2),
        "constants": {str(tp): asdict(split(e.x, key)[0]) for tp, e in of_size.items()},
        "errors": errors,
        "bands": conformal.bands(_stacked(inside), _stacked(outside), limits, how),
        "draws": {
            str(tp): [
                asdict(split(x, key)[0])
                for x in _draws(e, _owners(_sized(parts, tp), precision), tp, np.array(effects[tp]))
            ]
            for tp, e in of_size.items()
        },
    }


def _sized(parts: list[Cluster], tp: int) -> list[Cluster]:
    return [c for c in parts if c.tp == tp]


def _kept(c: Cluster, precision: str, near: bool) -> NDArray[np.bool_]:
    return fitted_rows(c.rows, precision) & (_near(c.rows) | (not near))


def _joined(parts: list[Cluster], precision: str, *, near: bool = False) -> Terms:
    """The rows of `parts` that enter a fit; `near`: those in the range that the out-of-range band is judged from."""
    return joined([c.terms.where(_kept(c, precision, near)) for c in parts])


def _owners(parts: list[Cluster], precision: str) -> NDArray[np.int64]:
    counts = [int(fitted_rows(c.rows, precision).sum()) for c in parts]
    return np.repeat(np.arange(len(parts), dtype=np.int64), counts)


def _draws(e: Estimate, owner: NDArray[np.int64], tp: int, effects: Floats) -> list[Floats]:
    """The fit with resampled models, plus the effect of a model that it had not seen at this TP size: normal, with
    the mean and the covariance of the effects, float64[M, 20], of the models that were left out in turn."""
    centre = effects.mean(axis=0)
    out = []
    for b in range(DRAWS):
        ids = np.arange(len(effects), dtype=np.int64)
        shares = portable.exponential(_SEED, "table bootstrap", np.full_like(ids, b), ids)
        shares /= shares.mean()
        moved = reweighted(e, shares[owner], np.zeros(len(NAMES)))
        normal = portable.normal(_SEED, f"table effect {tp}", np.full_like(ids, b), ids)
        effect = centre + normal @ (effects - centre) / np.sqrt(max(len(effects) - 1, 1))
        out.append(np.maximum(moved + effect, _floor()))
    return out


def _floor() -> Floats:
    low = np.full(len(NAMES), -np.inf)
    low[NAMES.index("power")] = 0.0
    for j, name in enumerate(NAMES):
        if name.endswith("_us"):
            low[j] = 0.0
    return low


def fitted_rows(rows: StepRows, precision: str) -> NDArray[np.bool_]:
    """Return bool[N]: the rows that enter a fit.

    Mixed fp8 steps are judged but not fitted: their token counts (257, 513, ...) meet kernels up to twice as slow as
    at 512 or 768, which no curve that rises with tokens can follow, and engines measured in fp8 show nothing of it
    (docs/adr/0005).
    """
    return np.asarray((rows.kind != "mixed") | (precision != "fp8"))


def _near(rows: StepRows) -> NDArray[np.bool_]:
    context = np.maximum(rows.context_tokens, rows.prefix_tokens)
    return np.asarray((rows.tokens <= _RANGE["tokens"]) & (context <= _RANGE["context_tokens"]))


def _stacked(parts: dict[str, list[Floats]]) -> dict[str, Floats]:
    return {k: np.concatenate(v) for k, v in parts.items()}
