"""What a serving engine adds to a profile's kernels, as it was run: scheduling, client, collectives, KV width.

Two habits are told apart, because the measured engines differ by more than the kernels do:

    sync    the next step is scheduled when the last has ended; the profile's engine time is paid in full
    async   the next step is scheduled while the last one runs: engine time a sequence hides behind the
            kernels, and a new request joins one step later than it could, which its first token shows

The constants are in `data/serving_constants.json`, with the rows that each was fitted on (docs/calibration.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from math import isqrt

from calibration import constants as data
from calibration.constants import all_reduce_us
from calibration.gpus import GPUS, Gpu
from calibration.memory import shape_of
from policies.costs import Profile
from traces.errors import InputError, nearest

SCHEDULING = ("profile", "sync", "async")
# vLLM leaves its own all-reduce kernel for NCCL above this many bytes; the kernel tables go on with the former.
CUSTOM_REDUCE_BYTES = 8 << 20
_REDUCE_LATENCY_US = 20.0


@dataclass(frozen=True)
class Serving:
    """How an engine is run.

    http_us             client and HTTP time before the first token
    first_token_steps   steps between the one a request could join and the one it joins, where the engine is busy
    hidden              whether engine time a sequence hides behind the kernels
    fp8_permille        measured over tabulated time of reading an fp8 checkpoint's weights (decode; prefill has none)
    reduce_gb_per_s     bus rate of all-reduces above 8 MiB; 0 leaves the kernel table
    kv8                 whether fp8 checkpoints keep KV in 8 bits
    """

    http_us: int = 0
    first_token_steps: int = 0
    hidden: bool = False
    fp8_permille: int = 1000
    reduce_gb_per_s: int = 0
    kv8: bool = False


@cache
def serving(scheduling: str) -> Serving:
    """Return the fitted habit by name; "profile" changes nothing. Raises InputError with the nearest name."""
    if scheduling == "profile":
        return Serving()
    if scheduling not in SCHEDULING:
        raise InputError(nearest(scheduling, SCHEDULING, what="scheduling"))
    c = data.read("serving_constants")["constants"]
    common = Serving(http_us=c["http_us"], fp8_permille=c["fp8_permille"], kv8=True)
    if scheduling == "sync":
        return common
    return replace(common, first_token_steps=1, hidden=True, reduce_gb_per_s=c["reduce_gb_per_s"])


def served(profile: Profile, how: Serving) -> tuple[Profile, tuple[str, ...]]:
    """Return the profile as served, and what was assumed. Step prices stay whole numbers, ascending in tokens."""
    notes = []
    out = profile
    if how.hidden:
        # The step's launch stays; what grows with the batch (scheduling, sampling's bookkeeping) is hidden.
        out = replace(out, overhead_per_seq_ps=0)
        notes.append("assumed: asynchronous scheduling")
    if how.http_us:
        out = replace(out, http_overhead_ps=how.http_us * 1_000_000)
    fp8 = profile.identity["precision"] == "fp8"
    scale = how.fp8_permille if fp8 and str(profile.identity["gpu"]) in ("H100", "H200") else 1000
    if scale != 1000 or how.reduce_gb_per_s:
        out = replace(out, linear_ps=_linear(profile, scale, how.reduce_gb_per_s))
    if fp8 and how.kv8 and "kv_precision" not in profile.identity:
        # Capacity only: measured decode steps over an 8-bit cache are no faster than over bf16.
        out = replace(out, kv_bytes_per_token=max(profile.kv_bytes_per_token // 2, 1))
        notes.append("assumed: KV cache of an fp8 checkpoint in 8 bits")
    return out, tuple(notes)


def _linear(profile: Profile, permille: int, reduce_gb_per_s: int) -> tuple[int, ...]:
    g, tp, shape = GPUS.get(str(profile.identity["gpu"])), int(profile.identity["tp"]), shape_of(profile)
    known = g is not None and shape is not None and tp in (2, 4, 8) and g.nvlink
    out = []
    floor = profile.linear_ps[0]
    if known and g is not None and shape is not None:
        floor -= _reduce_ps(g, tp, shape.layers, 2 * profile.linear_tokens[0] * shape.hidden, 0)
    for tokens, ps in zip(profile.linear_tokens, profile.linear_ps, strict=True):
        before = after = 0
        if known and g is not None and shape is not None:
            before = _reduce_ps(g, tp, shape.layers, 2 * tokens * shape.hidden, 0)
            after = _reduce_ps(g, tp, shape.layers, 2 * tokens * shape.hidden, reduce_gb_per_s)
        own = max(ps - before, 0)
        # The smooth maximum of power 2, its weight reads (the cost of one token) made shorter.
        saved = floor * floor * (1_000_000 - permille * permille) // 1_000_000
        out.append(isqrt(max(own * own - saved, 0)) + after)
    return tuple(accumulate(out, max))


def _reduce_ps(g: Gpu, tp: int, layers: int, message_bytes: int, gb_per_s: int) -> int:
    table = all_reduce_us(g, tp, message_bytes)
    if gb_per_s and message_bytes > CUSTOM_REDUCE_BYTES:
        ring = _REDUCE_LATENCY_US + message_bytes * 2 * (tp - 1) / tp / (gb_per_s * 1e3)
        table = min(table, ring)
    return 2 * layers * round(table * 1e3) * 1000
