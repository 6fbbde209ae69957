"""Random weights of a decode step, and its paged KV cache."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kernels.op import StepConfig
from traces import draws


@dataclass(frozen=True)
class LayerWeights:
    """One layer. Matrices are [out, in]; `gate_up` has the gate's rows, then the up projection's."""

    attention_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor
    output: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True)
class Weights:
    """All layers, the embedding [vocab, hidden], which is the LM head too, and the last norm."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor

    @classmethod
    def random(cls, config: StepConfig, seed: int, device: str = "cpu") -> Weights:
        """Return normal weights, matrices scaled by 1/sqrt(in) so that activations keep their size over layers.

        The embedding is small: what a row's last state says is then what the layers made of it, not its own token.
        """
        shape = config.shape

        def normal(layer: int, tensor: int, scale: float, *size: int, mean: float = 0.0) -> torch.Tensor:
            generator = torch.Generator(device)
            generator.manual_seed(draws.bits(seed, "kernel weights", layer, tensor) >> 1)
            x = torch.randn(size, generator=generator, device=device, dtype=torch.float32)
            return x.mul_(scale).add_(mean).to(config.dtype)

        def matrix(layer: int, tensor: int, rows: int, columns: int) -> torch.Tensor:
            return normal(layer, tensor, 1 / math.sqrt(columns), rows, columns)

        layers = tuple(
            LayerWeights(
                normal(i, 0, 0.1, shape.hidden, mean=1.0),
                matrix(i, 1, shape.qkv, shape.hidden),
                normal(i, 2, 0.1, shape.qkv),
                matrix(i, 3, shape.hidden, shape.attention),
                normal(i, 4, 0.1, shape.hidden, mean=1.0),
                matrix(i, 5, 2 * shape.intermediate, shape.hidden),
                matrix(i, 6, shape.hidden, shape.intermediate),
            )
            for i in range(shape.layers)
        )
        embedding = normal(shape.layers, 0, 0.02, shape.vocab, shape.hidden)
        return cls(embedding, layers, normal(shape.layers, 1, 0.1, shape.hidden, mean=1.0))


@dataclass(frozen=True)
class KvCache:
    """Keys and values, each [layers, slots, kv_heads, head_dim]."""

    keys: torch.Tensor
    values: torch.Tensor

    @classmethod
    def empty(cls, config: StepConfig, device: str = "cpu") -> KvCache:
        """Return a cache of zeros."""
        shape = config.shape
        size = (shape.layers, config.slots, shape.kv_heads, shape.head_dim)
        keys, values = (torch.zeros(size, dtype=config.dtype, device=device) for _ in range(2))
        return cls(keys, values)

    def float(self) -> KvCache:
        """Return a copy in float32."""
        return KvCache(self.keys.float().clone(), self.values.float().clone())
