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

    def __init__(self, host: HostInfo, error: float) -> None:
        self._surface = surface(host)
        self._replicas = host.replicas
        self._error = error

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
        return self._error * engine_ns * (seqs / self._replicas) * slower
