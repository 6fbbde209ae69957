"""How many draft tokens a step has room for: AgentSpec's M(b) = AI - b, section 3.2."""

from __future__ import annotations

from policies.costs import Profile
from traces.errors import InputError


def knee_tokens(profile: Profile) -> int:
    """Return AI as the profile has it: the tokens at which a step's growing cost meets its constant one.

    The line through the last two knots of the linear cost, per token, against the cost of one token.
    """
    xs, ys = profile.linear_tokens, profile.linear_ps
    if len(xs) < 2 or ys[-1] <= ys[-2]:
        return xs[-1]
    return max(ys[0] * (xs[-1] - xs[-2]) // (ys[-1] - ys[-2]), 1)


def intensity_tokens(ai: int, profile: Profile) -> int:
    """Return the option `ai` as tokens: itself, or the profile's knee where it is 0. InputError below 0."""
    if ai < 0:
        raise InputError(f"ai={ai}: expected a number of tokens, or 0 for the profile's knee")
    return ai or knee_tokens(profile)


def room_tokens(intensity: int, seqs: int) -> int:
    """Return M(b), at least 0.

    >>> room_tokens(256, 100), room_tokens(256, 300)
    (156, 0)
    """
    return max(intensity - seqs, 0)
