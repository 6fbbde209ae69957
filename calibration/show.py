"""One profile in words: what it knows, from where, how wrong."""

from __future__ import annotations

import textwrap

from calibration.memory import kv_blocks
from policies.costs import Profile
from sim.config import EngineConfig
from traces.errors import InputError

_BATCHES = (1, 8, 32, 64, 128, 256)
_WIDTHS = (1, 16, 64, 128, 192, 256, 512, 1024, 2048, 8192)


def describe(profile: Profile) -> str:
    """Return the text of `python -m calibration show`: identity, error, prices, memory, provenance."""
    p, error = profile, profile.error
    lines = [
        f"{p.name}   timing: {p.identity['timing']}",
        f"error     step time: MAPE {_percent(error, 'mape_percent')}, p95 {_percent(error, 'p95_percent')}",
        *_wrapped(str(error.get("how", "not stated"))),
    ]
    for kind, e in sorted(dict(error.get("by_kind", {})).items()):
        lines.append(
            f"  {kind:8}MAPE {e['mape_percent']} %, p95 {e['p95_percent']} %, bias {e['bias_percent']:+} %, "
            f"{e['rows']} rows"
        )
    for case, e in sorted(dict(error.get("serving_tpot", {})).items()):
        lines.append(
            f"  time per output token on a real engine, {case}: MAPE {e['mape_percent']} %, "
            f"bias {e['bias_percent']:+} %{', fitted' if e['fitted'] else ''}"
        )
    lines += [
        "prices    linear layers and LM head, ms by tokens of the step:",
        "          " + "  ".join(f"{n}: {p.linear_ps_at(n) / 1e9:.2f}" for n in _WIDTHS),
        "          a decode step at 2,048 tokens of context, ms by batch, engine included:",
        "          " + "  ".join(f"{b}: {p.step_ps(b, b, 2048 * b) / 1e9:.2f}" for b in _BATCHES),
        f"          KV read {p.kv_read_ps_per_token / 1e3:.1f} ns a token, prefill attention "
        f"{p.attention_as_per_pair / 1e9:.3f} ns a pair, kernels {p.per_seq_ps / 1e6:g} us a sequence",
        f"          engine {p.overhead_ps / 1e6:g} us a step, {p.overhead_per_seq_ps / 1e6:g} us a sequence",
        f"memory    weights {p.weight_bytes / 2**30:.2f} GiB, KV {p.kv_bytes_per_token / 2**10:g} KiB "
        f"a token on each GPU of {p.gpu_bytes / 2**30:.1f} GiB, at most {p.max_model_len} tokens a sequence",
        *_wrapped(_capacity(p)),
        "from",
    ]
    for key, value in sorted(p.provenance.items()):
        if key == "notes":
            continue
        lines += _wrapped(f"{key}: {_flat(value)}")
    for note in p.provenance.get("notes", []):
        lines += _wrapped(f"note: {note}")
    return "\n".join(lines)


def _capacity(p: Profile) -> str:
    try:
        capacity = kv_blocks(p, EngineConfig())
    except InputError as e:
        return str(e)
    return f"{capacity.blocks} KV blocks with default engine options ({capacity.source_text})"


def _percent(error: dict[str, object], field: str) -> str:
    return f"{error[field]} %" if field in error else "not stated"


def _flat(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in sorted(value.items()))
    return str(value)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 118, initial_indent=" " * 10, subsequent_indent=" " * 12)
