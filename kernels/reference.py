"""The decode step in plain float32 torch, layer by layer, without tiles, parts or plans on a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.op import StepConfig
from kernels.ops.attention import attend
from kernels.ops.norm import rms_norm
from kernels.ops.rotary import turn, turns
from kernels.ops.rows import places
from kernels.plan import Plan
from kernels.weights import KvCache, Weights


@dataclass(frozen=True)
class ReferenceResult:
    """Last normalised states [rows, hidden] and logits [rows, vocab], float32."""

    states: torch.Tensor
    logits: torch.Tensor


def reference_step(
    config: StepConfig,
    weights: Weights,
    cache: KvCache,
    plan: Plan,
    tokens: torch.Tensor,
    contexts: torch.Tensor,
    tables: torch.Tensor,
) -> ReferenceResult:
    """Run one step in float32. Mutates `cache` (float32): the new tokens' keys and values.

    tokens int[rows], contexts int[batch], tables int[batch, blocks]; all on the cache's device.
    """
    shape, device = config.shape, cache.keys.device
    sequence, place = (x.to(device) for x in places(plan))
    position = contexts.long()[sequence] + place
    block = tables.long()[sequence, position // config.page]
    slot = plan.slot_base + block * config.page + position % config.page
    turned = turns(config, str(device))[position]
    x = weights.embedding.float()[tokens.long()[: plan.rows]]
    for i, layer in enumerate(weights.layers):
        y = rms_norm(x, layer.attention_norm.float(), shape.norm_eps)
        y = y @ layer.qkv.float().T + layer.qkv_bias.float()
        y = y.view(plan.rows, -1, shape.head_dim)
        q, k, v = torch.split(y, [shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
        cache.keys[i, slot], cache.values[i, slot] = turn(k, turned), v
        held = {
            "q": turn(q, turned), "contexts": contexts, "tables": tables,
            "k_cache": cache.keys[i], "v_cache": cache.values[i],
        }  # fmt: skip
        x = x + attend(config, plan, held).flatten(1) @ layer.output.float().T
        y = rms_norm(x, layer.mlp_norm.float(), shape.norm_eps)
        gate, up = (y @ layer.gate_up.float().T).chunk(2, dim=1)
        x = x + (torch.nn.functional.silu(gate) * up) @ layer.down.float().T
    states = rms_norm(x, weights.final_norm.float(), shape.norm_eps)
    return ReferenceResult(states, states @ weights.embedding.float().T)
