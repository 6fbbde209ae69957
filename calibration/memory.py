"""KV capacity as vLLM computes it: a share of the GPU, less weights, less the peak of its profile run.

    kv_bytes = gpu_memory_utilization · gpu_bytes - weights - activations
    activations = 1.0 GB + 4·hidden·max_num_batched_tokens
                  + max(12·vocab·max_num_seqs, 6·intermediate/tp·max_num_batched_tokens)

4·hidden are the hidden state and the residual in bf16; the profile run then peaks either in the sampler
(float32 logits and their sorted int64 indices, 12 bytes a sequence and vocabulary entry) or in the gated
MLP. The 1.0 GB (runtime, communicators, workspaces, fragmentation) is the constant that fits block counts
which vLLM 0.15 reported for five dense models on H100 (published with the BLIS workloads, Apache-2.0):
seven of the eight within 0.5 %, Llama-2-7B 1.2 % low. CUDA graphs do not count: those versions capture them
after the pool is sized, beyond the budget. Later ones may take an estimate off first (`Beside.graphs_counted`).

A draft model lies beside the target: its weights come off the budget, and each block also holds its KV. A block
count that the engine reported (its log line "GPU KV cache size", or engine.num_gpu_blocks) beats all of this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from calibration.latent import Latent
from calibration.models import MODELS, ModelShape, model
from policies.costs import Profile
from sim.config import EngineConfig
from traces.errors import InputError

GIB = 1 << 30
EAGLE = "eagle"
_RUNTIME_BYTES = 1_000_000_000
_SAMPLER_BYTES = 12


@dataclass(frozen=True)
class KvCapacity:
    """KV blocks of one replica, and a sentence that says where the number is from."""

    blocks: int
    source_text: str


@dataclass(frozen=True)
class Beside:
    """What shares the GPU with the model: a draft model, captured graphs. All zero: nothing.

    draft_weight_bytes, draft_kv_bytes_per_token   of ONE GPU
    graphs           CUDA graphs captured
    graphs_counted   whether their memory comes off the budget before the pool is sized
    """

    draft_weight_bytes: int = 0
    draft_kv_bytes_per_token: int = 0
    graphs: int = 0
    graphs_counted: bool = False


def draft_beside(target: ModelShape, draft: str, tp: int, precision: str = "bf16") -> Beside:
    """Return a draft model's share of one GPU under the target's `tp`.

    draft: a known model's name, or "eagle": one layer of the target's shape in bf16 behind a projection of two
    hidden states to one; embeddings and LM head are the target's. Raises InputError for an unknown name and where
    `tp` does not divide the draft.
    """
    if draft != EAGLE:
        shard = model(draft).shard(tp)
        return Beside(shard.weight_bytes(precision), shard.kv_bytes_per_token())
    one = replace(target, layers=1, experts=0, top_k=0, dense_layers=0, dense_intermediate=0)
    layer = replace(one, intermediate=_dense_width(target)).shard(tp)
    # The projection is replicated: every GPU needs the whole hidden state.
    projection = 2 * target.hidden * target.hidden
    return Beside(2 * (layer.dense_params + projection + layer.norm_params), layer.kv_bytes_per_token())


def _dense_width(shape: ModelShape) -> int:
    return max(shape.intermediate * max(shape.top_k, 1) + shape.shared_intermediate, shape.dense_intermediate)


def shape_of(profile: Profile) -> ModelShape | None:
    """Return the model's shape: the one written in the profile, else a known model's, else None."""
    shape = profile.provenance.get("shape")
    if isinstance(shape, dict):
        try:
            latent = shape.get("latent")
            return ModelShape(**{**shape, "latent": Latent(**latent) if latent else None})
        except TypeError:
            raise InputError(
                f"{profile.name}: field 'provenance.shape': expected the fields "
                f"{', '.join(sorted(ModelShape.__dataclass_fields__))}"
            ) from None
    return MODELS.get(str(profile.identity["model"]))


def activation_bytes(
    shape: ModelShape | None, tp: int, max_num_seqs: int, max_num_batched_tokens: int
) -> int:
    """Return bytes that vLLM's profile run takes beyond the weights, on one GPU. An unknown shape: 2 GiB."""
    if shape is None:
        return 2 * GIB
    width = _dense_width(shape) // tp
    mlp = 6 * width * max_num_batched_tokens
    sampler = _SAMPLER_BYTES * shape.vocab * max_num_seqs
    return _RUNTIME_BYTES + 4 * shape.hidden * max_num_batched_tokens + max(mlp, sampler)


def graph_bytes(profile: Profile, graphs: int) -> int:
    """Return bytes that captured graphs take: the profile's bytes a graph (they share a pool, so less is likely)."""
    return profile.graph_bytes * graphs


def kv_bytes(profile: Profile, engine: EngineConfig, beside: Beside = Beside()) -> tuple[int, str]:
    """Return bytes left for KV on one GPU (may be negative), and the arithmetic in words."""
    budget = int(engine.gpu_memory_utilization * profile.gpu_bytes)
    activations = activation_bytes(
        shape_of(profile), int(profile.identity["tp"]), engine.max_num_seqs, engine.max_num_batched_tokens
    )
    parts = {"weights": profile.weight_bytes, "activations": activations}
    if beside.draft_weight_bytes:
        parts["draft model"] = beside.draft_weight_bytes
    if beside.graphs and beside.graphs_counted:
        parts[f"{beside.graphs} graphs"] = graph_bytes(profile, beside.graphs)
    left = budget - sum(parts.values())
    taken = "".join(f" - {name} {_gib(n)}" for name, n in parts.items())
    return (
        left,
        f"{engine.gpu_memory_utilization:g} x {_gib(profile.gpu_bytes)}{taken} = {_gib(left)} GiB a GPU",
    )


def kv_blocks(profile: Profile, engine: EngineConfig, beside: Beside = Beside()) -> KvCapacity:
    """Return the KV blocks of a replica: the given count, else vLLM's arithmetic.

    Raises InputError with the arithmetic where not even one block is left.
    """
    if engine.num_gpu_blocks is not None:
        return KvCapacity(engine.num_gpu_blocks, "given: engine.num_gpu_blocks")
    left, text = kv_bytes(profile, engine, beside)
    block = engine.block_tokens * (profile.kv_bytes_per_token + beside.draft_kv_bytes_per_token)
    if left < block:
        raise InputError(f"{profile.name}: no memory for KV: {text}; one block needs {block} bytes")
    blocks = left // block
    return KvCapacity(blocks, f"computed: {text} / {block} bytes a block of {engine.block_tokens}")


def _gib(n: int) -> str:
    return f"{n / GIB:.2f}"
