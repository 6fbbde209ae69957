"""Reads the arguments of `vllm serve`: what they set here, and which of them are not modelled.

Every flag is accounted for: it sets a field, it changes nothing that is simulated (ports, logging, keys), or
it is in `notes` as "not modelled: --flag". An unknown flag is an error with the nearest name; none is dropped
silently.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from calibration import datasheet
from calibration.memory import GIB
from calibration.vllm_flags import ALIASES, SETTERS, SWITCHES, Parsed, known, note_not_modelled, set_model
from sim.config import EngineConfig
from traces.errors import InputError, nearest

# vLLM V1's defaults of max_num_seqs and max_num_batched_tokens when serving: GPUs of at least 70 GiB, A100
# excepted, get the larger pair (vLLM pull request 17885 says why A100 does not).
_LARGE_GPU_BYTES = 70 * GIB
_LARGE, _SMALL = (1024, 8192), (256, 2048)


@dataclass(frozen=True)
class VllmServe:
    """What a `vllm serve` line says: engine options, model, GPUs a replica, precision, and remarks.

    engine      fields of EngineConfig that the line or vLLM's defaults set
    model, tp, precision, kv_precision   None where the line says nothing of them
    notes       "not modelled: ...", "assumed: ..." and "default: ..." lines, in the order of the line
    """

    engine: dict[str, Any]
    model: str | None
    tp: int | None
    precision: str | None
    notes: tuple[str, ...]
    kv_precision: str | None = None

    def config(self) -> EngineConfig:
        """Return the engine options, our defaults where vLLM has no such option."""
        return EngineConfig(**self.engine)


def parse(text: str, gpu: str = "H200") -> VllmServe:
    """Return what the arguments of `vllm serve` set; a leading `vllm serve` is skipped.

    gpu decides vLLM's defaults for --max-num-seqs and --max-num-batched-tokens, which depend on it.
    Raises InputError, one line, on an unknown flag, a missing or a wrong value.
    """
    parsed = Parsed()
    for flag, value in _flags(text):
        if flag == "":
            set_model(parsed, flag, value or "")
        elif flag in SETTERS:
            SETTERS[flag](parsed, flag, value or "")
        elif flag in SWITCHES:
            parsed.engine["prefix_cache"] = SWITCHES[flag]
        elif flag in known("not_modelled") or flag in known("not_modelled_switches"):
            note_not_modelled(parsed, flag, value)
    _add_defaults(parsed, gpu)
    serve = VllmServe(
        parsed.engine, parsed.model, parsed.tp, parsed.precision, tuple(parsed.notes), parsed.kv_precision
    )
    serve.config()  # raises where the options contradict each other
    return serve


def render(serve: VllmServe) -> str:
    """Return a `vllm serve` argument line that parses back to the same engine, model, tp and precisions.

    Options that vLLM does not have (a radix prefix cache, a watermark, fast-forward) are not in it.
    """
    e = serve.config()
    words = [] if serve.model is None else [serve.model]
    if serve.tp is not None:
        words += ["--tensor-parallel-size", str(serve.tp)]
    words += ["--max-num-seqs", str(e.max_num_seqs), "--block-size", str(e.block_tokens)]
    words += ["--max-num-batched-tokens", str(e.max_num_batched_tokens)]
    words += ["--gpu-memory-utilization", repr(e.gpu_memory_utilization), "--scheduling-policy", e.queue]
    words.append("--no-enable-prefix-caching" if e.prefix_cache == "none" else "--enable-prefix-caching")
    if e.max_model_len is not None:
        words += ["--max-model-len", str(e.max_model_len)]
    if e.num_gpu_blocks is not None:
        words += ["--num-gpu-blocks-override", str(e.num_gpu_blocks)]
    if serve.precision is not None:
        bf16 = serve.precision == "bf16"
        words += ["--dtype", "bfloat16"] if bf16 else ["--quantization", serve.precision]
    if serve.kv_precision is not None:
        words += ["--kv-cache-dtype", serve.kv_precision]
    return shlex.join(words)


def _flags(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield (flag, value); flag "" for the positional model, value None for a switch."""
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise InputError(f"engine={text!r}: {e}") from None
    if words[:2] == ["vllm", "serve"]:
        words = words[2:]
    switches = {*SWITCHES, *known("harmless_switches"), *known("not_modelled_switches")}
    valued = {*SETTERS, *known("harmless"), *known("not_modelled")}
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if not word.startswith("-"):
            yield "", word
            continue
        flag, equals, value = word.partition("=")
        if word.startswith("-O"):
            # The optimisation level is glued to its flag: -O3, -O.mode=3.
            flag, equals, value = "-O", "=", word[2:].lstrip("=")
        flag = ALIASES.get(flag, flag.replace("_", "-") if flag.startswith("--") else flag)
        if flag in switches:
            if equals:
                raise InputError(f"{flag}={value}: a switch takes no value")
            yield flag, None
        elif flag in valued:
            if not equals:
                if i >= len(words) or words[i].startswith("--"):
                    raise InputError(f"{flag}: expected a value after it")
                value = words[i]
                i += 1
            yield flag, value
        else:
            raise InputError(_unknown(flag, switches | valued | set(ALIASES)))


def _unknown(flag: str, flags: set[str]) -> str:
    # The whole list is over a hundred flags: the nearest name is what helps.
    return nearest(flag, flags, what="vllm serve flag").split(" allowed: ")[0].rstrip(";")


def _add_defaults(parsed: Parsed, gpu: str) -> None:
    g = datasheet.gpu(gpu)
    large = g.memory_bytes >= _LARGE_GPU_BYTES and g.key != "A100"
    seqs, tokens = _LARGE if large else _SMALL
    why = f"vLLM serving on {g.key}"
    if "max_num_batched_tokens" not in parsed.engine:
        # vLLM raises its own default to the sequence cap, never the user's value.
        tokens = max(tokens, parsed.engine.get("max_num_seqs", 0))
        parsed.engine["max_num_batched_tokens"] = tokens
        parsed.notes.append(f"default: --max-num-batched-tokens {tokens} ({why})")
    if "max_num_seqs" not in parsed.engine:
        seqs = min(seqs, parsed.engine["max_num_batched_tokens"])
        parsed.engine["max_num_seqs"] = seqs
        parsed.notes.append(f"default: --max-num-seqs {seqs} ({why})")
