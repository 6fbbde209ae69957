"""A step cost stated by hand: t(M) = base + slope M, in place of what kernels were measured at."""

from __future__ import annotations

from dataclasses import replace

from policies.costs import Profile

_WIDEST_TOKENS = 1 << 20


def with_step_law(profile: Profile, base_us: float | None, slope_us: float | None) -> Profile:
    """Return the profile with an affine step law; both None: the profile itself.

    base_us, slope_us: microseconds a step, and a token of it. Nothing else makes a step longer then, so that the law
    is all there is: context, sequences and the engine's CPU time are free. What graphs cost stays. The name and the
    notes say that the law was stated.
    """
    if base_us is None and slope_us is None:
        return profile
    base_ps, slope_ps = round((base_us or 0.0) * 1e6), round((slope_us or 0.0) * 1e6)
    note = f"stated step law: {base_us or 0:g} us + {slope_us or 0:g} us a token; not measured here"
    notes = [*profile.provenance.get("notes", ()), note]
    return replace(
        profile,
        identity={**profile.identity, "timing": "stated law"},
        linear_tokens=(1, _WIDEST_TOKENS),
        linear_ps=(base_ps + slope_ps, base_ps + slope_ps * _WIDEST_TOKENS),
        kv_read_ps_per_token=0,
        per_seq_ps=0,
        overhead_ps=0,
        overhead_per_seq_ps=0,
        provenance={**profile.provenance, "notes": notes},
        error={},
        posterior={},
        bands={},
    )
