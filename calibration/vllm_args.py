"""Reads the arguments of `vllm serve`: what they set here, and which of them are not modelled.

Every flag is accounted for: it sets a field, it changes nothing that is simulated (ports, logging, API keys), or it
is in `notes` as "not modelled: --flag". An unknown flag is an error with the nearest name; none is dropped silently.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from calibration.gpus import GPUS, gpu
from calibration.memory import GIB
from sim.config import EngineConfig
from traces.errors import InputError, nearest

# vLLM V1's `serve` defaults: GPUs of at least 70 GiB, except A100, get the larger pair.
_LARGE_GPU_BYTES = 70 * GIB
_LARGE, _SMALL = (1024, 8192), (256, 2048)

_ALIASES = {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size",
            "-q": "--quantization"}  # fmt: skip

# Flags with a value that changes nothing simulated.
_HARMLESS = frozenset(
    "--host --port --uds --api-key --served-model-name --tokenizer --tokenizer-mode --tokenizer-revision --revision "
    "--download-dir --load-format --chat-template --chat-template-content-format --tool-call-parser "
    "--reasoning-parser --seed --uvicorn-log-level --root-path --ssl-keyfile --ssl-certfile --allowed-origins "
    "--response-role --max-log-len --generation-config --code-revision --hf-token --config-format "
    "--distributed-executor-backend --data-parallel-address --api-server-count --middleware".split()
)
# Switches (no value) that change nothing simulated.
_HARMLESS_SWITCHES = frozenset(
    "--trust-remote-code --disable-log-requests --disable-log-stats --enable-auto-tool-choice "
    "--enable-log-requests --no-enable-log-requests --enable-chunked-prefill --disable-uvicorn-access-log "
    "--enable-prompt-tokens-details --enable-request-id-headers --enable-server-load-tracking "
    "--enable-force-include-usage --return-tokens-as-token-ids".split()
)
# Flags with a value, and switches, that would change timing or memory and are not modelled.
_NOT_MODELLED = frozenset(
    "--speculative-config --kv-cache-dtype --swap-space --cpu-offload-gb --kv-transfer-config --kv-offloading-size "
    "--kv-offloading-backend --pipeline-parallel-size --data-parallel-size --decode-context-parallel-size "
    "--max-num-partial-prefills --long-prefill-token-threshold --max-long-partial-prefills --compilation-config -O "
    "--cuda-graph-sizes --cudagraph-capture-sizes --attention-backend --lora-modules --max-loras --max-lora-rank "
    "--hf-overrides --rope-scaling --limit-mm-per-prompt --mm-processor-kwargs --num-lookahead-slots "
    "--guided-decoding-backend --structured-outputs-config --all2all-backend --stream-interval "
    "--kv-cache-memory-bytes --max-seq-len-to-capture".split()
)
_NOT_MODELLED_SWITCHES = frozenset(
    "--enforce-eager --async-scheduling --no-async-scheduling --enable-lora --enable-expert-parallel "
    "--disable-custom-all-reduce --no-enable-chunked-prefill --disable-cascade-attn --enable-sleep-mode "
    "--calculate-kv-scales --disable-sliding-window --enable-dbo --disable-hybrid-kv-cache-manager".split()
)
_FP8_QUANTISATION = frozenset(("fp8", "fbgemm_fp8", "compressed-tensors"))


@dataclass(frozen=True)
class VllmServe:
    """What a `vllm serve` line says: engine options, model, GPUs a replica, precision, and remarks.

    model       None where the line names none
    notes       "not modelled: ..." and "default: ..." lines, in the order of the line
    """

    engine: EngineConfig
    model: str | None
    tp: int
    precision: str
    notes: tuple[str, ...]


@dataclass
class _Parsed:
    engine: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    tp: int = 1
    precision: str = "bf16"
    notes: list[str] = field(default_factory=list)


def parse_vllm_args(text: str, gpu_key: str = "H200") -> VllmServe:
    """Return what the arguments of `vllm serve` set; a leading `vllm serve` is skipped.

    gpu_key decides vLLM's defaults for --max-num-seqs and --max-num-batched-tokens, which depend on the GPU's memory.
    Raises InputError, one line, on an unknown flag, a missing or a wrong value.
    """
    parsed = _Parsed()
    for flag, value in _flags(text):
        if flag == "":
            _set_model(parsed, value or "")
        elif flag in _SETTERS:
            _SETTERS[flag](parsed, flag, value or "")
        elif flag in _SWITCHES:
            parsed.engine["prefix_cache"] = _SWITCHES[flag]
        elif flag in _NOT_MODELLED or flag in _NOT_MODELLED_SWITCHES:
            shown = f"{flag} {value}" if value is not None and not value.startswith("{") else flag
            parsed.notes.append(f"not modelled: {shown}")
    _add_defaults(parsed, gpu_key)
    return VllmServe(
        EngineConfig(**parsed.engine), parsed.model, parsed.tp, parsed.precision, tuple(parsed.notes)
    )


def print_vllm_args(serve: VllmServe) -> str:
    """Return a `vllm serve` argument line that parses back to the same engine, model, tp and precision."""
    e = serve.engine
    words = [] if serve.model is None else [serve.model]
    words += ["--tensor-parallel-size", str(serve.tp), "--max-num-seqs", str(e.max_num_seqs)]
    words += ["--max-num-batched-tokens", str(e.max_num_batched_tokens), "--block-size", str(e.block_tokens)]
    words += ["--gpu-memory-utilization", repr(e.gpu_memory_utilization), "--scheduling-policy", e.queue]
    words.append("--no-enable-prefix-caching" if e.prefix_cache == "none" else "--enable-prefix-caching")
    if e.max_model_len is not None:
        words += ["--max-model-len", str(e.max_model_len)]
    if e.num_gpu_blocks is not None:
        words += ["--num-gpu-blocks-override", str(e.num_gpu_blocks)]
    if serve.precision == "fp8":
        words += ["--quantization", "fp8"]
    return shlex.join(words)


def _flags(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield (flag, value); flag "" for the positional model, value None for a switch."""
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise InputError(f"engine={text!r}: {e}") from None
    if words[:2] == ["vllm", "serve"]:
        words = words[2:]
    known = {*_SETTERS, *_SWITCHES, *_HARMLESS, *_HARMLESS_SWITCHES, *_NOT_MODELLED, *_NOT_MODELLED_SWITCHES}
    bare = {*_SWITCHES, *_HARMLESS_SWITCHES, *_NOT_MODELLED_SWITCHES}
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if not word.startswith("-"):
            yield "", word
            continue
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            flag = flag.replace("_", "-")
        flag = _ALIASES.get(flag, flag)
        if flag not in known:
            raise InputError(_unknown(flag, known))
        if flag in bare:
            if equals:
                raise InputError(f"{flag}={value}: a switch takes no value")
            yield flag, None
            continue
        if not equals:
            if i >= len(words) or words[i].startswith("--"):
                raise InputError(f"{flag}: expected a value after it")
            value = words[i]
            i += 1
        yield flag, value


def _unknown(flag: str, known: set[str]) -> str:
    message = nearest(flag, known, what="vllm serve flag")
    # The whole list is over a hundred flags: the nearest name is what helps.
    return message.split(" allowed: ")[0].rstrip(";")


def _set_model(parsed: _Parsed, value: str) -> None:
    if parsed.model is not None:
        raise InputError(f"vllm serve: two models given, {parsed.model!r} and {value!r}")
    parsed.model = value
    if value.lower().endswith("-fp8"):
        parsed.precision = "fp8"


def _whole(name: str, low: int = 1) -> Callable[[_Parsed, str, str], None]:
    def put(parsed: _Parsed, flag: str, value: str) -> None:
        scale = {"k": 1000, "K": 1024, "m": 10**6, "M": 1 << 20}.get(value[-1:], 0)
        digits = value[:-1] if scale else value
        if not digits.isascii() or not digits.isdigit() or int(digits) < low:
            raise InputError(f"{flag} {value}: expected a whole number of at least {low}")
        number = int(digits) * (scale or 1)
        if name == "tp":
            parsed.tp = number
        else:
            parsed.engine[name] = number

    return put


def _utilization(parsed: _Parsed, flag: str, value: str) -> None:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not 0.05 <= number <= 1:
        raise InputError(f"{flag} {value}: expected a number from 0.05 to 1")
    parsed.engine["gpu_memory_utilization"] = number


def _model_length(parsed: _Parsed, flag: str, value: str) -> None:
    if value not in ("auto", "-1"):
        _whole("max_model_len")(parsed, flag, value)


def _queue(parsed: _Parsed, flag: str, value: str) -> None:
    if value not in ("fcfs", "priority"):
        raise InputError(nearest(value, ("fcfs", "priority"), what=flag))
    parsed.engine["queue"] = value


def _dtype(parsed: _Parsed, flag: str, value: str) -> None:
    allowed = ("auto", "bfloat16", "half", "float16", "float", "float32")
    if value not in allowed:
        raise InputError(nearest(value, allowed, what=flag))
    if value in ("float", "float32"):
        parsed.notes.append(f"not modelled: {flag} {value}: priced as bf16")


def _quantization(parsed: _Parsed, flag: str, value: str) -> None:
    if value in _FP8_QUANTISATION:
        parsed.precision = "fp8"
        if value == "compressed-tensors":
            parsed.notes.append(f"assumed: {flag} {value} holds fp8 weights")
    elif value == "mxfp4":
        parsed.precision = "mxfp4"
    else:
        raise InputError(nearest(value, (*_FP8_QUANTISATION, "mxfp4"), what=f"{flag}"))


def _kv_dtype(parsed: _Parsed, flag: str, value: str) -> None:
    allowed = ("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2")
    if value not in allowed:
        raise InputError(nearest(value, allowed, what=flag))
    if value.startswith("fp8"):
        parsed.notes.append(f"not modelled: {flag} {value}: KV is sized and priced as bf16")


def _speculative(parsed: _Parsed, flag: str, value: str) -> None:
    try:
        body = json.loads(value)
    except json.JSONDecodeError as e:
        raise InputError(f"{flag}: not JSON: {e.msg}") from None
    method = body.get("method", "draft model") if isinstance(body, dict) else "?"
    parsed.notes.append(f"not modelled: {flag} ({method}): decoding is simulated one token a step")


_SETTERS: dict[str, Callable[[_Parsed, str, str], None]] = {
    "--model": lambda parsed, flag, value: _set_model(parsed, value),
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
_SWITCHES = {"--enable-prefix-caching": "block_hash", "--no-enable-prefix-caching": "none"}


def _add_defaults(parsed: _Parsed, gpu_key: str) -> None:
    g = gpu(gpu_key)
    large = g.memory_bytes >= _LARGE_GPU_BYTES and g is not GPUS["A100"]
    seqs, tokens = _LARGE if large else _SMALL
    kind = "a GPU of 70 GiB or more that is no A100" if large else "this GPU"
    if "max_num_batched_tokens" not in parsed.engine:
        # vLLM raises its own default to the sequence cap, never the user's value.
        parsed.engine["max_num_batched_tokens"] = max(tokens, parsed.engine.get("max_num_seqs", 0))
        parsed.notes.append(
            f"default: --max-num-batched-tokens {parsed.engine['max_num_batched_tokens']} ({kind}, {g.key})"
        )
    if "max_num_seqs" not in parsed.engine:
        parsed.engine["max_num_seqs"] = min(seqs, parsed.engine["max_num_batched_tokens"])
        parsed.notes.append(f"default: --max-num-seqs {parsed.engine['max_num_seqs']} ({kind}, {g.key})")
    parsed.engine.setdefault("prefix_cache", "block_hash")
