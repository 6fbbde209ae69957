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

from calibration.knots import KNOT_TOKENS, SCALE, interpolate
from policies.costs import Profile
from traces.errors import InputError

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


def spread(profile: Profile, low: float = 0.05, high: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return quantiles of the factor draws by term, such as {"kv_read": (0.97, 1.04)}; the linear ones by knot."""
    p = profile.posterior
    columns: dict[str, list[int]] = {name: list(p[name]) for name in _FACTORS if name in p}
    for j, n in enumerate(p.get("knot_tokens", ())):
        columns[f"linear at {n}"] = [row[j] for row in p["linear"]]
    out = {}
    for name, values in columns.items():
        ordered = sorted(values)
        last = len(ordered) - 1
        out[name] = (ordered[round(low * last)] / SCALE, ordered[round(high * last)] / SCALE)
    return out


def _ratio(value: int, base: int) -> int:
    return (value * SCALE + base // 2) // base if base else SCALE
