"""Which form of a step's time carries over? Each is fitted to some kernel rows and judged on others.

Forms, by least squares on relative error with large residuals damped, without priors: linear in tokens, context and
query-key pairs; a roofline whose weight reads and multiplies add; their hard maximum; their smooth maximum. The last
line but one adds nine knots and the ridge of `calibration.fit`, started at neutral constants rather than at published
ones; the last is a random forest on tokens, context and pairs, which knows no form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, lsq_linear

from calibration import constants as data
from calibration.fit import default_prior, fit
from calibration.fit_tables import Cluster, clusters
from calibration.fit_terms import Floats, Terms, joined, price, vector
from calibration.stats import absolute_error
from traces import draws

POINTS = 23
_SEED = 0
_NEUTRAL = data.Constants(1.25, 1.3, 1.1, 1.4, 40.0, 1.0, 0.0, 2.0, "neutral")
Predictor = Callable[[Terms, Floats], Floats]


@dataclass(frozen=True)
class Rows:
    """Terms of N steps and their raw counts, float64[N, 4]: one, tokens, context, query-key pairs."""

    terms: Terms
    raw: Floats

    def where(self, mask: NDArray[np.bool_] | NDArray[np.int64]) -> Rows:
        """Return the steps that a mask or an index keeps."""
        return Rows(self.terms.where(mask), self.raw[mask])


def _rows(parts: list[Cluster]) -> Rows:
    raw = [
        np.c_[np.ones(len(c.rows)), c.rows.tokens, c.rows.context, c.rows.pairs].astype(np.float64)
        for c in parts
    ]
    return Rows(joined([c.terms for c in parts]), np.concatenate(raw))


def _linear(train: Rows) -> Predictor:
    scale = train.raw.max(axis=0)
    a = train.raw / scale / train.terms.seconds[:, None]
    x = lsq_linear(a, np.ones(len(a)), bounds=(0, np.inf)).x / scale
    return lambda _, raw: np.asarray(raw @ x)


def _sum(a: Floats, b: Floats, _: float) -> Floats:
    return a + b


def _hard(a: Floats, b: Floats, _: float) -> Floats:
    return np.maximum(a, b)


def _smooth(a: Floats, b: Floats, p: float) -> Floats:
    high = np.maximum(np.maximum(a, b), 1e-30)
    return np.asarray(high * ((a / high) ** p + (b / high) ** p) ** (1 / p))


def _roofline(
    combine: Callable[[Floats, Floats, float], Floats], *, power: bool
) -> Callable[[Rows], Predictor]:
    def predict(x: Floats, t: Terms) -> Floats:
        w, f, kv, a, layer, seq, fixed, p = (float(v) for v in x)
        curve = combine(w * t.reads, f * t.multiplies, p)
        rest = (
            w * t.head + kv * t.kv + a * t.attention + 1e-6 * (layer * t.layers + seq * t.seqs) + 1e-3 * fixed
        )
        return np.asarray(curve + rest)

    def fitted(train: Rows) -> Predictor:
        start = np.array([1.25, 1.3, 1.1, 1.4, 40.0, 1.0, 0.1, 2.0])
        low = np.array([0.3, 0.3, 0.3, 0.1, 0.0, 0.0, 0.0, 1.0])
        high = np.array([4.0, 4.0, 4.0, 6.0, 400.0, 100.0, 20.0, 8.0])
        if not power:
            low[-1], high[-1] = 1.999, 2.001
        t = train.terms
        x = least_squares(
            lambda x: predict(x, t) / t.seconds - 1, start, bounds=(low, high), loss="soft_l1", f_scale=0.05,
            x_scale=start,
        ).x  # fmt: skip
        return lambda t, _: predict(x, t)

    return fitted


def _knots(train: Rows) -> Predictor:
    prior = default_prior(vector(_NEUTRAL, data.Overhead(0.0, 0.0, "none")), widen=3.0)
    x = fit(train.terms, prior).x
    return lambda t, _: price(x, t)[0]


def _forest(train: Rows) -> Predictor:
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestRegressor(n_estimators=200, random_state=_SEED)
    model.fit(train.raw[:, 1:], train.terms.seconds)
    return lambda _, raw: np.asarray(model.predict(raw[:, 1:]), dtype=np.float64)


FOREST = "random forest (200 trees)"
FORMS: dict[str, Callable[[Rows], Predictor]] = {
    "linear (4)": _linear,
    "additive roofline (7)": _roofline(_sum, power=False),
    "hard max (7)": _roofline(_hard, power=False),
    "smooth max (8)": _roofline(_smooth, power=True),
    "smooth max, nine knots, ridge": _knots,
}
if find_spec("sklearn"):  # the extra `study`: it is here to be compared with, and priced by nowhere
    FORMS[FOREST] = _forest


def splits() -> dict[str, tuple[Rows, Rows]]:
    """Return (fitted, judged) by the split's name; all at TP 1, bf16, kernel time alone."""
    h100, h200, a100 = (
        {c.model: c for c in clusters(f"{key}_sxm:bf16") if c.tp == 1} for key in ("h100", "h200", "a100")
    )
    one = h100["Qwen3-8B"]
    own = _rows([one])
    chosen, far = _calibration_points(one), _far(one)
    others = np.ones(len(one.rows), dtype=np.bool_)
    others[chosen] = False
    near_points = np.array([i for i in chosen if not far[i]], dtype=np.int64)
    return {
        f"{POINTS} points": (own.where(chosen), own.where(others)),
        "extrapolation": (own.where(near_points), own.where(far)),
        "8B to 32B": (own, _rows([h100["Qwen3-32B"]])),
        "H100 to H200": (_rows(list(h100.values())), _rows(list(h200.values()))),
        "H100 to A100": (_rows(list(h100.values())), _rows(list(a100.values()))),
    }


def study() -> dict[str, dict[str, dict[str, float | int]]]:
    """Return error in percent by form and split."""
    found: dict[str, dict[str, dict[str, float | int]]] = {}
    for split, (train, test) in splits().items():
        for name, fitted in FORMS.items():
            got = fitted(train)(test.terms, test.raw)
            found.setdefault(name, {})[split] = absolute_error(got / test.terms.seconds - 1)
    return found


def text(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the table, mean/p95 of absolute percentage error."""
    names = list(next(iter(found.values())))
    lines = [f"{'form (parameters)':32}" + "".join(f"{n:>16}" for n in names)]
    for form, errors in found.items():
        cells = (f"{errors[n]['mape_percent']:.1f}/{errors[n]['p95_percent']:.0f}" for n in names)
        lines.append(f"{form:32}" + "".join(f"{c:>16}" for c in cells))
    if FOREST not in found:
        lines.append(f"{FOREST:32}" + f"{'not run':>16}" * len(names) + "   (pip install 'foreserve[study]')")
    rows = next(iter(found.values()))
    lines.append("rows judged".ljust(32) + "".join(f"{rows[n]['rows']:>16}" for n in names))
    return "\n".join(lines)


def _far(c: Cluster) -> NDArray[np.bool_]:
    """Steps beyond 2,048 tokens or 8,192 tokens of context or prefix: no calibration point lies there."""
    reach = np.maximum(c.rows.context_tokens, c.rows.prefix_tokens)
    return np.asarray((c.rows.tokens > 2048) | (reach > 8192))


def _calibration_points(c: Cluster) -> NDArray[np.int64]:
    """A small measurement plan: keyed choices among the steps in range, by kind: 11 decode, 8 prefill, 4 mixed."""
    near = ~_far(c)
    out: list[int] = []
    for kind, count in (("decode", 11), ("prefill", 8), ("mixed", POINTS - 19)):
        ids = np.flatnonzero(near & (c.rows.kind == kind))
        order = np.argsort(draws.uniform_array(_SEED, "calibration points", ids), kind="stable")
        out += ids[order[:count]].tolist()
    return np.array(sorted(out), dtype=np.int64)
