"""Profiles as they might truly be: draws of a profile's step costs from what is known of their error.

A profile that holds a posterior is drawn from it. Any other states only a mean absolute error of its step
times; then each component (linear layers, KV reads, prefill attention, kernels and engine a sequence, engine a
step) is multiplied by its own lognormal factor of that mean absolute error. Taking the whole stated error as
systematic is wide on purpose: the part of it that is scatter between step shapes would average out over a run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibration import posterior
from policies.costs import Profile
from traces import portable
from traces.errors import InputError

# The fields that one factor multiplies together, by the name of the component.
COMPONENTS: dict[str, tuple[str, ...]] = {
    "linear": ("linear_ps",),
    "kv_read": ("kv_read_ps_per_token",),
    "attention": ("attention_as_per_pair",),
    "per_seq": ("per_seq_ps",),
    "overhead": ("overhead_ps", "overhead_per_seq_ps"),
}
PPM = 1_000_000
_DRAW_SEED = 0
# E|log factor| of a normal of deviation s is s·sqrt(2/pi); this is the inverse.
_DEVIATION_A_MEAN_ERROR = 1.2533141373155003


def source(profile: Profile) -> str:
    """Say what draws of this profile come from, for notes; raises InputError where nothing is known."""
    if held := posterior.draws(profile):
        return f"of the {held} joint draws in its posterior ({profile.posterior.get('source', 'no source stated')})"
    return (
        f"lognormal factors on {len(COMPONENTS)} step-cost components, from the stated mean absolute error of "
        f"{100 * _stated_error(profile):g} %"
    )


def draw(profile: Profile, index: int) -> Profile:
    """Return draw `index` (from 0) of the profile: the same identity and memory, other step costs.

    The same index gives the same profile on every machine, in every arm; the tables stay whole numbers.
    Raises InputError for a profile that states neither a posterior nor an error, and beyond the draws it holds.
    """
    if held := posterior.draws(profile):
        if index >= held:
            raise InputError(
                f"{profile.name}: field 'posterior': holds {held} draws; use profile_draws={held} or fewer"
            )
        return posterior.draw(profile, index)
    deviation = _DEVIATION_A_MEAN_ERROR * _stated_error(profile)
    ids = np.arange(len(COMPONENTS), dtype=np.int64)
    normal = portable.normal(_DRAW_SEED, "profile draw", np.int64(index), ids)  # type: ignore[arg-type]
    factors = portable.exp(deviation * normal)
    ppm = {name: round(float(f) * PPM) for name, f in zip(COMPONENTS, factors, strict=True)}
    return scaled(profile, ppm)


def scaled(profile: Profile, ppm: dict[str, int]) -> Profile:
    """Return the profile with components multiplied by whole millionths (1_000_000 changes nothing).

    ppm: component of COMPONENTS -> factor; components left out stay as they are. Raises KeyError for others.

    >>> from calibration import catalog
    >>> p = catalog.open(catalog.names()[0])
    >>> scaled(p, {"kv_read": 2_000_000}).kv_read_ps_per_token == 2 * p.kv_read_ps_per_token
    True
    """
    changed: dict[str, int | tuple[int, ...]] = {}
    for component, factor in ppm.items():
        for field in COMPONENTS[component]:
            value = getattr(profile, field)
            # One factor for the whole table keeps it non-decreasing: rounding down is monotone.
            changed[field] = (
                tuple(v * factor // PPM for v in value) if isinstance(value, tuple) else value * factor // PPM
            )
    return replace(profile, **changed)  # type: ignore[arg-type]


def _stated_error(profile: Profile) -> float:
    mape = profile.error.get("mape_percent")
    if isinstance(mape, bool) or not isinstance(mape, int | float) or not 0 <= mape <= 200:
        raise InputError(
            f"{profile.name}: field 'error.mape_percent': got {mape!r}; draws of a profile need its stated error "
            "(a number from 0 to 200) or a posterior"
        )
    return float(mape) / 100
