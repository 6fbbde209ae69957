"""How wrong a profile's prices may be, as joint draws, and the profiles that those draws give.

A profile keeps, for each draw, whole ten-thousandths that multiply its token curve at nine knots, its KV reads and
its prefill attention, and whole picoseconds of the terms that may be 0. All arithmetic is on integers, so a drawn
profile is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.knots import KNOT_TOKENS, SCALE, interpolate
from policies.costs import Profile
from traces.errors import InputError

COVERAGE = 0.9
_FACTORS = ("kv_read", "attention")
_PLAIN = ("per_seq_ps", "overhead_ps", "overhead_per_seq_ps", "http_overhead_ps")


def posterior(base: Profile, drawn: Sequence[Profile], source: str) -> dict[str, Any]:
    """Return the `posterior` object of `base`: how each drawn profile of the same shard differs from it.

    The drawn ones need prices at KNOT_TOKENS alone.
    """
    linear = [[_ratio(d.linear_ps_at(n), base.linear_ps_at(n)) for n in KNOT_TOKENS] for d in drawn]
    return {
        "scale": SCALE,
        "knot_tokens": list(KNOT_TOKENS),
        "source": source,
        "linear": linear,
        "kv_read": [_ratio(d.kv_read_ps_per_token, base.kv_read_ps_per_token) for d in drawn],
        "attention": [_ratio(d.attention_as_per_pair, base.attention_as_per_pair) for d in drawn],
        **{name: [int(getattr(d, name)) for d in drawn] for name in _PLAIN},
    }


def draws(profile: Profile) -> int:
    """Return how many draws the profile holds, 0 if none."""
    return len(profile.posterior.get("linear", []))


def draw(profile: Profile, index: int) -> Profile:
    """Return draw `index` (taken modulo the number held): the same identity and memory, other step costs.

    Its token curve never falls. Raises InputError for a profile without a posterior.
    """
    held, p = draws(profile), profile.posterior
    if not held:
        raise InputError(f"{profile.name}: field 'posterior': the profile holds no draws")
    i = index % held
    at_knots = tuple(int(v) for v in p["linear"][i])
    curve = (
        ps * interpolate(n, at_knots) // SCALE
        for n, ps in zip(profile.linear_tokens, profile.linear_ps, strict=True)
    )
    plain: dict[str, Any] = {name: int(p[name][i]) for name in _PLAIN}
    return replace(
        profile,
        linear_ps=tuple(accumulate(curve, max)),
        kv_read_ps_per_token=profile.kv_read_ps_per_token * int(p["kv_read"][i]) // SCALE,
        attention_as_per_pair=profile.attention_as_per_pair * int(p["attention"][i]) // SCALE,
        posterior={},
        **plain,
    )


def interval(drawn: ArrayLike, coverage: float = COVERAGE) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (low, high), float64[...], of draws float64[M, ...] along their first axis.

    If the truth is one more draw from where the M came, it lies below the k-th smallest of them with probability
    k / (M + 1). So the ends are the order statistics of ranks (M + 1) tail and (M + 1) (1 - tail), between two of
    them along the straight line: definition 6 of Hyndman and Fan (1996), as in `conformal`. The customary rank
    1 + (M - 1) tail describes the M draws themselves: with 50 of them its 90 % interval would hold the truth in
    86.5 % (ranks 3.45 and 47.55 of 51). With fewer than 19 draws no rank lies so far out for 90 %: their extremes.

    >>> low, high = interval(np.arange(1.0, 51.0))
    >>> float(round(low, 2)), float(round(high, 2))
    (2.55, 48.45)
    """
    tail = (1 - coverage) / 2
    low, high = np.quantile(np.asarray(drawn, dtype=np.float64), [tail, 1 - tail], axis=0, method="weibull")
    return low, high


def spread(profile: Profile, coverage: float = COVERAGE) -> dict[str, tuple[float, float]]:
    """Return the interval of the factor draws by term, such as {"kv_read": (0.97, 1.04)}; the linear ones by knot."""
    p = profile.posterior
    columns: dict[str, list[int]] = {name: list(p[name]) for name in _FACTORS if name in p}
    for j, n in enumerate(p.get("knot_tokens", ())):
        columns[f"linear at {n}"] = [row[j] for row in p["linear"]]
    out = {}
    for name, values in columns.items():
        low, high = interval(values, coverage)
        out[name] = (float(low) / SCALE, float(high) / SCALE)
    return out


def _ratio(value: int, base: int) -> int:
    return (value * SCALE + base // 2) // base if base else SCALE
