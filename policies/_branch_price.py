"""What a fill costs the canonical requests beside it (DynBranch section 3.4, C_s(V_H); the paper gives no form).

Reading: an externality, in ns. A fill that stays T in an engine slows each of its N canonical requests by the rise of
the slowdown surface, so C = T * N * (s(fills + 1) - s(fills)) / s(fills). The surface is probed on the engine before
the run (`HostInfo.slowdown`); without a probe it follows from the profile's kernel costs alone, prefill of the fills
included.
"""

from __future__ import annotations

from policies._branch_envelope import Pressure
from policies.costs import Profile
from policies.views import FillOption, HostInfo, Slowdown

# Reference shape of a probe that a host did not run: canonical requests, their context, a fill's output. Assumed.
_SEQS, _CONTEXT, _OUTPUT = 8, 1024, 128
_ELASTICITY_MAX = 0.95  # beyond, no load is stationary
_FILLS = (0, 1, 2, 4, 8, 16, 32, 64)
_EACH = (0, 256, 1024, 4096, 8192)


def surface(host: HostInfo) -> Slowdown:
    """Return the host's probe, or a surface made from its profile."""
    return host.slowdown or from_profile(host.profile)


def from_profile(profile: Profile) -> Slowdown:
    """Return the slowdown of 8 canonical decodes of 1,024 tokens beside fills that prefill once and emit 128 tokens."""
    base = profile.step_ps(_SEQS, _SEQS, _SEQS * _CONTEXT)
    rows = []
    for fills in _FILLS:
        row = []
        for each in _EACH:
            prompt = max(each - _OUTPUT, 0)
            linear = profile.linear_ps_at(_SEQS + fills + prompt) - profile.linear_ps_at(_SEQS + fills)
            prefill = linear + profile.chunk_attention_ps(prompt, 0) if prompt else 0
            step = profile.step_ps(_SEQS + fills, _SEQS + fills, _SEQS * _CONTEXT + fills * each)
            row.append((step + fills * prefill / _OUTPUT) / base)
        rows.append(tuple(row))
    return Slowdown(_FILLS, _EACH, tuple(rows))


class Price:
    """C_s(V_H) in ns. Stateless."""

    def __init__(self, host: HostInfo, error: float, *, feedback: bool = False) -> None:
        self._surface = surface(host)
        self._replicas = host.replicas
        self._error = error
        self._feedback = feedback

    def cost_ns(self, load: Pressure, option: FillOption, engine_ns: float) -> float:
        """Return the price of one more fill, in an engine for `engine_ns`; 0 when no engine is involved.

        The probe's fills prefill all of their context, and that is most of what they cost. Tokens that are resident
        where the fill would run are not prefilled, so they are left out: over an answer of tens of tokens, reading them
        costs a few hundredths of making them.
        """
        if option.kv_tokens <= 0:
            return 0.0
        kv_tokens = max(option.kv_tokens - option.cached_tokens, 1)
        # Load is told for all replicas; a fill slows only those it shares an engine with.
        fills, held = load.fills / self._replicas, load.kv_tokens / self._replicas
        before = self._surface.at(fills, held)
        after = self._surface.at(fills + 1, held + kv_tokens)
        # A replica at work for a share of the time holds one request or more for that share, whatever this moment says.
        seqs = max(load.seqs, load.load * self._replicas)
        slower = max(after - before, 0.0) / before
        each = seqs / self._replicas
        cost = self._error * engine_ns * each * slower
        return cost * self._amplification(each, option.kv_tokens) if self._feedback else cost

    def _amplification(self, seqs: float, kv_tokens: int) -> float:
        """Return how much more than those here now a delay costs, since whoever is delayed stays and delays the next.

        With arrivals that do not wait, N = arrivals times T s(N): a delay by a small share d lets N rise by
        d / (1 - e), e the elasticity of the slowdown s in N. Canonical requests are taken to slow each other as
        fills of this size do, so that s is the same surface; e nears 1 where it has become a line through the
        origin.
        """
        here = self._surface.at(seqs, seqs * kv_tokens)
        more = self._surface.at(seqs + 1, (seqs + 1) * kv_tokens)
        return 1.0 / (1.0 - min(max(seqs * (more - here) / here, 0.0), _ELASTICITY_MAX))
