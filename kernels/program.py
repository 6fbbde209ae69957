"""The launches of one decode step over fixed buffers: what a CUDA graph records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from kernels.op import Launch, Op, Spec, StepConfig
from kernels.ops.argmax import ARGMAX
from kernels.ops.attention import ATTENTION
from kernels.ops.combine import COMBINE
from kernels.ops.down import DOWN
from kernels.ops.down import TILES as DOWN_TILES
from kernels.ops.embed import EMBED
from kernels.ops.gate_up import GATE_UP
from kernels.ops.lm_head import LM_HEAD
from kernels.ops.norm import norm_op
from kernels.ops.output import OUTPUT
from kernels.ops.output import TILES as OUTPUT_TILES
from kernels.ops.qkv import QKV
from kernels.ops.rotary import ROTARY
from kernels.shapes import Bounds
from kernels.weights import KvCache, Weights

Buffers = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Program:
    """A step's launches in stream order, each with the tensors it is bound to. Same buffers for every bound."""

    captured: Bounds
    calls: tuple[tuple[Launch, dict[str, torch.Tensor]], ...]

    def launch(self) -> None:
        """Launch all kernels on the current stream. Mutates buffers and the KV cache, in active rows only."""
        for kernel, tensors in self.calls:
            kernel(tensors)

    @property
    def programs(self) -> int:
        """Kernel programs (CTAs) of one replay, active or not."""
        total = 0
        for kernel, _ in self.calls:
            n = 1
            for extent in kernel.grid:
                n *= extent
            total += n
        return total


def ops(config: StepConfig) -> dict[str, Op]:
    """Return every distinct kernel of a step, by name."""
    output_norm = norm_op(config.tile("output", OUTPUT_TILES).split)
    down_norm = norm_op(config.tile("down", DOWN_TILES).split)
    return {
        "embed": EMBED, "first_norm": norm_op(0), "qkv": QKV, "rotary": ROTARY, "attention": ATTENTION,
        "combine": COMBINE, "output": OUTPUT, "output_norm": output_norm, "gate_up": GATE_UP, "down": DOWN,
        "down_norm": down_norm, "lm_head": LM_HEAD, "argmax": ARGMAX,
    }  # fmt: skip


def buffer_specs(config: StepConfig) -> dict[str, Spec]:
    """Return the activations of a step, by name: written and read within it, shared by all layers."""
    tables = {name: op.table(config) for name, op in ops(config).items()}
    return {
        "residual": tables["embed"]["residual"],
        "normed": tables["first_norm"]["normed"],
        "qkv_parts": tables["qkv"]["parts"],
        "q": tables["rotary"]["q"],
        "part_out": tables["attention"]["part_out"],
        "part_weight": tables["attention"]["part_weight"],
        "joined": tables["combine"]["joined"],
        "output_parts": tables["output"]["parts"],
        "activated": tables["gate_up"]["activated"],
        "down_parts": tables["down"]["parts"],
        "best": tables["lm_head"]["best"],
        "where": tables["lm_head"]["where"],
        "next_tokens": tables["argmax"]["tokens"],
    }


def build(
    config: StepConfig, captured: Bounds, weights: Weights, cache: KvCache, buffers: Buffers
) -> Program:
    """Return the step's program for grids that cover `captured`.

    buffers   `buffer_specs` and the inputs "plan", "tokens", "contexts", "tables", "turns"
    """
    step_ops = ops(config)
    launches = {name: op.plan(config, captured) for name, op in step_ops.items()}
    names = {name: tuple(op.table(config)) for name, op in step_ops.items()}

    def call(op: str, **renamed: torch.Tensor) -> tuple[Launch, dict[str, torch.Tensor]]:
        tensors = {name: renamed[name] if name in renamed else buffers[name] for name in names[op]}
        return launches[op], tensors

    def layers() -> Iterator[tuple[Launch, dict[str, torch.Tensor]]]:
        yield call("embed", embedding=weights.embedding)
        norm, parts = "first_norm", buffers["residual"]
        for i, layer in enumerate(weights.layers):
            kv = {"k_cache": cache.keys[i], "v_cache": cache.values[i]}
            yield call(norm, parts=parts, weight=layer.attention_norm)
            yield call("qkv", x=buffers["normed"], w=layer.qkv, parts=buffers["qkv_parts"])
            yield call("rotary", parts=buffers["qkv_parts"], bias=layer.qkv_bias, **kv)
            yield call("attention", **kv)
            yield call("combine")
            yield call("output", x=buffers["joined"], w=layer.output, parts=buffers["output_parts"])
            yield call("output_norm", parts=buffers["output_parts"], weight=layer.mlp_norm)
            yield call("gate_up", x=buffers["normed"], w=layer.gate_up)
            yield call("down", x=buffers["activated"], w=layer.down, parts=buffers["down_parts"])
            norm, parts = "down_norm", buffers["down_parts"]
        yield call(norm, parts=parts, weight=weights.final_norm)
        yield call("lm_head", x=buffers["normed"], w=weights.embedding)
        yield call("argmax", tokens=buffers["next_tokens"])

    return Program(captured, tuple(layers()))
