"""Calibrated step costs: the one price list that policies which price, the simulator and the live host share.

All arithmetic is on integers (picoseconds, attoseconds a query-key pair), and the curved part of the cost
is a table made once by calibration, so that every machine computes the same step time.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import MISSING, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from traces.errors import InputError, at, nearest

PROFILE_SCHEMA = 1
VERIFY_REGIMES = ("packed", "prefill")
_MAX_PROFILE_BYTES = 4 << 20


@dataclass(frozen=True)
class Profile:
    """What one engine on one GPU (group) costs, and how that is known.

    linear_tokens/linear_ps   knots of the step cost that depends on the step's tokens alone (weight reads and
                              matrix multiplies as a smooth maximum, LM head, per-layer constants, all-reduce);
                              ascending tokens, non-decreasing ps; straight lines between, last slope beyond
    kv_read_ps_per_token      reading one context token of KV by one sequence
    attention_as_per_pair     attoseconds a (query, key) pair of prefill attention
    per_seq_ps                kernels' cost a sequence
    overhead_ps, overhead_per_seq_ps   the engine's CPU time a step and a sequence that kernels do not hide
    kv_bytes_per_token        KV bytes one token takes on ONE GPU of the group
    weight_bytes              weights on ONE GPU
    gpu_bytes                 memory of ONE GPU
    pcie_bytes_per_s, pcie_copy_overhead_ps   host link of one GPU, one direction
    graph_build_ps, graph_bytes, graph_launch_ps, eager_launch_ps   CUDA graphs (an eager step pays the last)
    graph_compile_ps          what the first capture takes beyond its build (kernels compile on first use)
    graph_guard_ps_per_token  a token of a graph's grid whose tiles only test their guard (plan buffers)
    graph_plan_ps             writing the plan buffer before a replay
    piecewise_launch_ps       launches of a step whose attention is outside its graphs; they run ahead of the GPU, as
                              an eager step's do
    identity                  gpu, tp, model, precision, engine, timing ("kernel tables", "roofline", "measured")
    provenance                sources, digests, command, assumptions
    error                     stated error of the step time: mape_percent, p95_percent, how it was obtained
    http_overhead_ps          what a client waits for its first token beyond the engine; no part of any step
    verify                    how attention reads KV for several queries a sequence (`verify_read_tokens`):
                              regime, group, packed_rows, growth_permille, source; {} reads it once
    posterior                 joint draws of how wrong the prices are (calibration.posterior); {} if unknown
    bands                     conformal intervals of measured over predicted step time (calibration.conformal)
    """

    identity: dict[str, Any]
    linear_tokens: tuple[int, ...]
    linear_ps: tuple[int, ...]
    kv_read_ps_per_token: int
    attention_as_per_pair: int
    per_seq_ps: int
    overhead_ps: int
    overhead_per_seq_ps: int
    kv_bytes_per_token: int
    weight_bytes: int
    gpu_bytes: int
    max_model_len: int
    pcie_bytes_per_s: int
    pcie_copy_overhead_ps: int
    graph_build_ps: int = 0
    graph_bytes: int = 0
    graph_launch_ps: int = 0
    eager_launch_ps: int = 0
    provenance: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] = field(default_factory=dict)
    http_overhead_ps: int = 0
    verify: dict[str, Any] = field(default_factory=dict)
    posterior: dict[str, Any] = field(default_factory=dict)
    bands: dict[str, Any] = field(default_factory=dict)
    graph_compile_ps: int = 0
    graph_guard_ps_per_token: int = 0
    graph_plan_ps: int = 0
    piecewise_launch_ps: int = 0

    @property
    def name(self) -> str:
        """`<gpu>x<tp>--<model>--<precision>--<engine>`, which is also the file's stem."""
        i = self.identity
        return f"{i['gpu']}x{i['tp']}--{i['model']}--{i['precision']}--{i['engine']}"

    def linear_ps_at(self, tokens: int) -> int:
        """Return the token-dependent cost of a step of `tokens` tokens (0 costs nothing), in ps."""
        if tokens <= 0:
            return 0
        xs, ys = self.linear_tokens, self.linear_ps
        if len(xs) == 1:
            return ys[0]
        i = min(max(bisect_right(xs, tokens), 1), len(xs) - 1)
        x0, y0, x1, y1 = xs[i - 1], ys[i - 1], xs[i], ys[i]
        return max(y0 + (y1 - y0) * (tokens - x0) // (x1 - x0), 0) if tokens >= xs[0] else ys[0]

    def step_ps(self, tokens: int, seqs: int, context_tokens: int, prefill_pairs: int = 0) -> int:
        """Return the duration of one step in ps.

        tokens: tokens that go through the linear layers (decode, verify and prefill; padded width if a graph
        pads). seqs: sequences in the step. context_tokens: KV tokens read, summed over sequences.
        prefill_pairs: sum over prefill chunks of chunk·(prefix + chunk/2), rounded down.
        """
        return (
            self.linear_ps_at(tokens)
            + self.kv_read_ps_per_token * context_tokens
            + self.attention_as_per_pair * prefill_pairs // 1_000_000
            + (self.per_seq_ps + self.overhead_per_seq_ps) * seqs
            + self.overhead_ps
        )

    def chunk_attention_ps(self, chunk_tokens: int, prefix_tokens: int) -> int:
        """Return the attention cost of one prefill chunk in ps: its flops, or reading the prefix once if that is more.

        The second bound matters for the few new tokens that follow a long cached prefix.
        """
        pairs = chunk_tokens * prefix_tokens + chunk_tokens * chunk_tokens // 2
        return max(self.attention_as_per_pair * pairs // 1_000_000, self.kv_read_ps_per_token * prefix_tokens)

    def verify_read_tokens(self, queries: int, context_tokens: int, regime: str | None = None) -> int:
        """Return the KV tokens that attention of `queries` tokens of one sequence over its context costs.

        "packed": the query heads of one KV head share a tile of `packed_rows` rows, so KV is read once while
        queries·group fit it. "prefill": the prefill kernel, each further query adds `growth_permille`. None
        is the regime that the profile names; a profile without one reads the context once. Pass the result
        as context to `step_ps`.
        """
        v = self.verify
        regime = regime or v.get("regime")
        if regime is None or queries <= 1:
            return context_tokens
        if regime == "packed":
            return context_tokens * -(-queries * int(v.get("group", 1)) // int(v.get("packed_rows", 64)))
        if regime == "prefill":
            return context_tokens * (1000 + int(v.get("growth_permille", 0)) * (queries - 1)) // 1000
        raise InputError(nearest(regime, VERIFY_REGIMES, what="verify regime"))

    def linear_table(self, max_tokens: int) -> list[int]:
        """Return `linear_ps_at(n)` for n = 0..max_tokens, for hosts that look it up every step."""
        return [self.linear_ps_at(n) for n in range(max_tokens + 1)]

    def to_json(self) -> str:
        """Return the profile as JSON text; `parse_profile` reads it back."""
        body: dict[str, Any] = {"schema": PROFILE_SCHEMA}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            body[name] = list(value) if isinstance(value, tuple) else value
        return json.dumps(body, indent=1, sort_keys=True) + "\n"


def parse_profile(text: str, source: str = "profile") -> Profile:
    """Read a profile from JSON text; raises InputError naming `source` and the field."""
    try:
        body = json.loads(text)
    except json.JSONDecodeError as e:
        raise InputError(f"{at(source, e.lineno)}: not JSON: {e.msg}") from None
    if not isinstance(body, dict):
        raise InputError(f"{source}: a profile is a JSON object")
    if body.get("schema") != PROFILE_SCHEMA:
        raise InputError(
            f"{at(source, field='schema')}: got {body.get('schema')!r}, this version reads {PROFILE_SCHEMA}"
        )
    fields = Profile.__dataclass_fields__
    unknown = sorted(set(body) - set(fields) - {"schema"})
    if unknown:
        raise InputError(
            f"{at(source, field=unknown[0])}: unknown field; allowed: {', '.join(sorted(fields))}"
        )
    values: dict[str, Any] = {}
    for name, spec in fields.items():
        if name not in body:
            if spec.default is not MISSING or spec.default_factory is not MISSING:
                continue
            raise InputError(f"{at(source, field=name)}: missing")
        values[name] = _checked(body[name], name, str(spec.type), source)
    profile = Profile(**values)
    xs, ys = profile.linear_tokens, profile.linear_ps
    if not xs or len(xs) != len(ys):
        raise InputError(f"{at(source, field='linear_ps')}: needs one value for each of 'linear_tokens'")
    if xs[0] < 1 or any(b <= a for a, b in pairwise(xs)):
        raise InputError(f"{at(source, field='linear_tokens')}: must ascend from at least 1")
    if any(b < a for a, b in pairwise(ys)):
        raise InputError(f"{at(source, field='linear_ps')}: must not decrease")
    regime = profile.verify.get("regime")
    if regime is not None and regime not in VERIFY_REGIMES:
        raise InputError(f"{at(source, field='verify')}: {nearest(regime, VERIFY_REGIMES, what='regime')}")
    for key in ("gpu", "tp", "model", "precision", "engine", "timing"):
        if key not in profile.identity:
            raise InputError(f"{at(source, field='identity')}: lacks {key!r}")
    return profile


def load_profile(path: Path) -> Profile:
    """Read a profile file; raises InputError with one clear line."""
    try:
        if path.stat().st_size > _MAX_PROFILE_BYTES:
            raise InputError(f"{path}: a profile is at most {_MAX_PROFILE_BYTES >> 20} MiB")
        return parse_profile(path.read_text(encoding="utf-8"), str(path))
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None


def _checked(value: Any, name: str, kind: str, source: str) -> Any:
    def whole(x: Any) -> int:
        if isinstance(x, bool) or not isinstance(x, int) or x < 0:
            raise InputError(f"{at(source, field=name)}: got {x!r}, expected a whole number of at least 0")
        return x

    if kind == "int":
        return whole(value)
    if kind.startswith("tuple"):
        if not isinstance(value, list):
            raise InputError(f"{at(source, field=name)}: expected a list of whole numbers")
        return tuple(whole(x) for x in value)
    if not isinstance(value, dict):
        raise InputError(f"{at(source, field=name)}: expected an object")
    return value
