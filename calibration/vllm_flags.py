"""What each flag of `vllm serve` does here: the setters, and the flags that are known and set nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from calibration import constants as data
from traces.errors import InputError, nearest

ALIASES = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-q": "--quantization",
}
SWITCHES = {"--enable-prefix-caching": "block_hash", "--no-enable-prefix-caching": "none"}
_FP8 = ("fp8", "fbgemm_fp8", "compressed-tensors")
_EIGHT_BIT_KV = ("fp8", "fp8_e4m3", "fp8_e5m2")
_SCALES = {"k": 1000, "K": 1024, "m": 10**6, "M": 1 << 20}


@dataclass
class Parsed:
    """What was read so far: fields of EngineConfig, the model, and remarks."""

    engine: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    tp: int | None = None
    precision: str | None = None
    kv_precision: str | None = None
    notes: list[str] = field(default_factory=list)


Setter = Callable[[Parsed, str, str], None]


def known(kind: str) -> frozenset[str]:
    """Return flags by kind: harmless, harmless_switches, not_modelled, not_modelled_switches.

    Harmless: nothing that is simulated depends on it. A switch takes no value.
    """
    return frozenset(data.read("vllm_flags")[kind])


def set_model(parsed: Parsed, flag: str, value: str) -> None:
    """Set the model; a name that ends with -FP8 sets the precision too."""
    if parsed.model is not None:
        raise InputError(f"vllm serve: two models given, {parsed.model!r} and {value!r}")
    parsed.model = value
    if value.lower().endswith("-fp8"):
        parsed.precision = "fp8"


def note_not_modelled(parsed: Parsed, flag: str, value: str | None) -> None:
    """Note a flag that would change timing or memory and does not here (0, or one GPU, changes nothing)."""
    if flag == "--enforce-eager":
        parsed.notes.append("not modelled: --enforce-eager: choose bucketer=eager")
    elif value is None or value.startswith("{"):
        parsed.notes.append(f"not modelled: {flag}")
    elif not (value == "0" or (value == "1" and flag.endswith("-parallel-size"))):
        parsed.notes.append(f"not modelled: {flag} {value}")


def _whole(name: str) -> Setter:
    def put(parsed: Parsed, flag: str, value: str) -> None:
        scale = _SCALES.get(value[-1:], 0)
        digits = value[:-1] if scale else value
        if not (digits.isascii() and digits.isdigit()) or int(digits) < 1:
            raise InputError(f"{flag} {value}: expected a whole number of at least 1")
        number = int(digits) * (scale or 1)
        if name == "tp":
            parsed.tp = number
        else:
            parsed.engine[name] = number

    return put


def _utilization(parsed: Parsed, flag: str, value: str) -> None:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not 0.05 <= number <= 1:
        raise InputError(f"{flag} {value}: expected a number from 0.05 to 1")
    parsed.engine["gpu_memory_utilization"] = number


def _model_length(parsed: Parsed, flag: str, value: str) -> None:
    if value not in ("auto", "-1"):
        _whole("max_model_len")(parsed, flag, value)


def _queue(parsed: Parsed, flag: str, value: str) -> None:
    parsed.engine["queue"] = _one_of(flag, value, ("fcfs", "priority"))


def _dtype(parsed: Parsed, flag: str, value: str) -> None:
    _one_of(flag, value, ("auto", "bfloat16", "half", "float16", "float", "float32"))
    if value in ("float", "float32"):
        parsed.notes.append(f"not modelled: {flag} {value}: priced as bf16")
    if value != "auto" and parsed.precision is None:
        # The dtype of activations; a quantised checkpoint keeps its weights' precision.
        parsed.precision = "bf16"


def _quantization(parsed: Parsed, flag: str, value: str) -> None:
    _one_of(flag, value, (*_FP8, "mxfp4"))
    parsed.precision = "fp8" if value in _FP8 else value
    if value == "compressed-tensors":
        parsed.notes.append(f"assumed: {flag} {value} holds fp8 weights")


def _kv_dtype(parsed: Parsed, flag: str, value: str) -> None:
    _one_of(flag, value, ("auto", "bfloat16", *_EIGHT_BIT_KV))
    if value in _EIGHT_BIT_KV:
        parsed.kv_precision = "fp8"
        parsed.notes.append(f"assumed: {flag} {value}: KV is sized in 8 bits, its reads are priced as bf16")


def _speculative(parsed: Parsed, flag: str, value: str) -> None:
    try:
        body = json.loads(value)
    except json.JSONDecodeError as e:
        raise InputError(f"{flag}: not JSON: {e.msg}") from None
    if not isinstance(body, dict):
        raise InputError(f"{flag}: expected a JSON object")
    method = body.get("method", "draft model")
    parsed.notes.append(f"not modelled: {flag} ({method}): choose a drafter and a budget instead")


def _one_of(flag: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InputError(nearest(value, allowed, what=flag))
    return value


SETTERS: dict[str, Setter] = {
    "--model": set_model,
    "--tensor-parallel-size": _whole("tp"),
    "--max-num-seqs": _whole("max_num_seqs"),
    "--max-num-batched-tokens": _whole("max_num_batched_tokens"),
    "--gpu-memory-utilization": _utilization,
    "--block-size": _whole("block_tokens"),
    "--num-gpu-blocks-override": _whole("num_gpu_blocks"),
    "--max-model-len": _model_length,
    "--scheduling-policy": _queue,
    "--dtype": _dtype,
    "--quantization": _quantization,
    "--kv-cache-dtype": _kv_dtype,
    "--speculative-config": _speculative,
}
