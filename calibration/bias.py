"""Profiles that are wrong in one term by a stated factor: what a decision is tested against.

decode    the part of a step that a single token already pays: weight reads, LM head, constants
prefill   what further tokens of a step add to it, and prefill attention
kv_read   reading the context
overhead  the engine's CPU time, a step and a sequence
"""

from __future__ import annotations

from dataclasses import replace

from calibration.uncertainty import PPM, scaled
from policies.costs import Profile
from traces.errors import InputError, nearest

# Term -> the piece of the measurement plan (calibration.plan) that measures it.
MEASURED_BY = {
    "decode": "piece A, decode steps at short context",
    "prefill": "piece A, prefill steps",
    "kv_read": "piece A, decode steps at 4,096 and 16,384 tokens of context",
    "overhead": "piece D, engine overhead",
}
TERMS = tuple(MEASURED_BY)


def biased(profile: Profile, term: str, ppm: int) -> Profile:
    """Return the profile with one term multiplied by whole millionths; its token curve still never falls.

    Raises InputError for an unknown term.

    >>> from calibration import catalog
    >>> p = catalog.open("H200x1--Qwen3-8B--bf16--vllm")
    >>> q = biased(biased(p, "decode", 2_000_000), "prefill", 2_000_000)
    >>> all(b == 2 * a for a, b in zip(p.linear_ps, q.linear_ps))
    True
    """
    if term not in TERMS:
        raise InputError(nearest(term, TERMS, what="term"))
    if term in ("kv_read", "overhead"):
        return scaled(profile, {term: ppm})
    first = profile.linear_ps[0]
    if term == "decode":
        more = first * ppm // PPM - first
        return replace(profile, linear_ps=tuple(v + more for v in profile.linear_ps))
    grown = tuple(first + (v - first) * ppm // PPM for v in profile.linear_ps)
    return scaled(replace(profile, linear_ps=grown), {"attention": ppm})
