"""Model shapes: the few integers that decide weight bytes, KV bytes and FLOPs of a transformer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from calibration.latent import Latent
from traces.errors import InputError, nearest

# Bits a stored weight of the layers' matrices takes. Embeddings, LM head and norms stay bf16 in all of them.
# mxfp4 (experts only, attention stays bf16): 4 bits and one 8-bit scale for every 32 weights.
# fp8_block: fp8 with a scale for every 128 x 128 weights, which other (slower) kernels multiply.
WEIGHT_BITS: dict[str, float] = {"bf16": 16, "fp8": 8, "fp8_block": 8, "mxfp4": 4.25}


@dataclass(frozen=True)
class ModelShape:
    """A decoder-only transformer with grouped-query or latent attention and a gated MLP, dense or of experts.

    intermediate   width of the gated MLP; of ONE expert when experts > 0
    experts        0 for a dense model; `top_k` of them read a token
    shared_intermediate   width of an always-active expert beside the routed ones, 0 for none
    precision      the precision the checkpoint is published in
    latent         widths of multi-head latent attention; kv_heads is then 1 and head_dim the width of a key
    dense_layers   first layers of a mixture of experts that have a plain MLP, of width `dense_intermediate`
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_positions: int
    tied_embeddings: bool = False
    experts: int = 0
    top_k: int = 0
    shared_intermediate: int = 0
    precision: str = "bf16"
    latent: Latent | None = None
    dense_layers: int = 0
    dense_intermediate: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the shape as plain data; what it has not (latent attention, dense layers) is left out."""
        late = ("latent", "dense_layers", "dense_intermediate")
        return {k: v for k, v in asdict(self).items() if v or k not in late}

    @property
    def kv_width(self) -> int:
        """Numbers one layer caches a token, over all KV heads."""
        return self.latent.cached if self.latent else 2 * self.kv_heads * self.head_dim

    def shard(self, tp: int) -> Shard:
        """Return one GPU's share under tensor parallelism; raises InputError when `tp` does not divide it."""
        return Shard(self, tp)

    @property
    def params(self) -> int:
        """Parameters in all: layers, embeddings (once if tied), norms; biases are left out (under 0.1 %)."""
        s = Shard(self, 1)
        tables = self.vocab * self.hidden * (1 if self.tied_embeddings else 2)
        return s.dense_params + s.expert_params * self.experts + tables + s.norm_params

    def kv_bytes_per_token(self, kv_bits: int = 16) -> int:
        """KV bytes of one token over all layers and all KV heads."""
        return self.layers * self.kv_width * kv_bits // 8

    def weight_bytes(self, precision: str) -> int:
        """Bytes of all weights on one GPU."""
        return Shard(self, 1).weight_bytes(precision)


@dataclass(frozen=True)
class Shard:
    """One GPU's part of a model: heads, MLP width and vocabulary divided by `tp`, KV heads at least one."""

    model: ModelShape
    tp: int

    def __post_init__(self) -> None:
        m, tp = self.model, self.tp
        if tp < 1:
            raise InputError(f"tp={tp}: expected a whole number of at least 1")
        for what in ("heads", "intermediate", "dense_intermediate"):
            value = getattr(m, what)
            if value % tp:
                raise InputError(f"tp={tp} does not divide {m.name}: {what}={value} % {tp} = {value % tp}")
        if m.kv_heads % tp and tp % m.kv_heads:
            raise InputError(f"tp={tp} neither divides nor is a multiple of {m.name}'s kv_heads={m.kv_heads}")

    @property
    def heads(self) -> int:
        """Query heads on this GPU."""
        return self.model.heads // self.tp

    @property
    def kv_heads(self) -> int:
        """KV heads on this GPU; beyond one head a GPU they are replicated."""
        return max(self.model.kv_heads // self.tp, 1)

    @property
    def dense_params(self) -> int:
        """Parameters of the layers' matrices that every token reads, routers included."""
        m = self.model
        attention = self._attention_params
        if not m.experts:
            return m.layers * (attention + 3 * m.hidden * m.intermediate // self.tp)
        shared = 3 * m.hidden * m.shared_intermediate // self.tp
        dense = m.dense_layers * (3 * m.hidden * m.dense_intermediate // self.tp)
        return m.layers * attention + self._expert_layers * (shared + m.hidden * m.experts) + dense

    @property
    def _attention_params(self) -> int:
        m = self.model
        if m.latent:
            return m.latent.params(m.hidden, self.heads)
        return m.hidden * (self.heads + 2 * self.kv_heads) * m.head_dim + self.heads * m.head_dim * m.hidden

    @property
    def _expert_layers(self) -> int:
        return self.model.layers - self.model.dense_layers

    @property
    def expert_params(self) -> int:
        """Parameters of ONE expert, summed over layers; 0 for a dense model."""
        m = self.model
        return self._expert_layers * (3 * m.hidden * m.intermediate // self.tp) if m.experts else 0

    @property
    def active_params(self) -> int:
        """Layer parameters one token multiplies with."""
        return self.dense_params + self.expert_params * self.model.top_k

    @property
    def head_params(self) -> int:
        """Parameters of the LM head on this GPU (vocabulary-parallel)."""
        return -(-self.model.vocab // self.tp) * self.model.hidden

    @property
    def norm_params(self) -> int:
        """Norm weights; replicated on every GPU."""
        m = self.model
        return (2 * m.layers + 1) * m.hidden + (m.layers * m.latent.norm_params if m.latent else 0)

    def dense_bytes(self, precision: str) -> int:
        """Bytes of the layers' always-read matrices."""
        bits = 16.0 if precision == "mxfp4" else weight_bits(precision)
        return int(self.dense_params * bits) // 8

    def expert_bytes(self, precision: str) -> int:
        """Bytes of ONE expert, summed over layers; 0 for a dense model."""
        return int(self.expert_params * weight_bits(precision)) // 8

    def weight_bytes(self, precision: str) -> int:
        """Bytes of everything this GPU holds: layers, LM head, embeddings (shared if tied), norms."""
        tables = self.head_params * (1 if self.model.tied_embeddings else 2)
        layers = self.dense_bytes(precision) + self.expert_bytes(precision) * self.model.experts
        return layers + 2 * (tables + self.norm_params)

    def kv_bytes_per_token(self, kv_bits: int = 16) -> int:
        """KV bytes of one token on this GPU; what latent attention caches is whole on every GPU."""
        m = self.model
        width = m.latent.cached if m.latent else 2 * self.kv_heads * m.head_dim
        return m.layers * width * kv_bits // 8

    @property
    def pair_flops(self) -> int:
        """FLOPs of attention for one (query, key) pair over all layers; latent attention in its absorbed form."""
        m = self.model
        return m.layers * (m.latent.pair_flops(self.heads) if m.latent else 4 * self.heads * m.head_dim)


def weight_bits(precision: str) -> float:
    """Return bits a weight; raises InputError with the nearest name."""
    if precision not in WEIGHT_BITS:
        raise InputError(nearest(precision, WEIGHT_BITS, what="precision"))
    return WEIGHT_BITS[precision]


# Facts of the published config.json files.
MODELS: dict[str, ModelShape] = {
    m.name: m
    for m in (
        ModelShape("Qwen3-0.6B", 28, 1024, 16, 8, 128, 3072, 151936, 40960, tied_embeddings=True),
        ModelShape("Qwen3-1.7B", 28, 2048, 16, 8, 128, 6144, 151936, 40960, tied_embeddings=True),
        ModelShape("Qwen3-4B", 36, 2560, 32, 8, 128, 9728, 151936, 40960, tied_embeddings=True),
        ModelShape("Qwen3-8B", 36, 4096, 32, 8, 128, 12288, 151936, 40960),
        ModelShape("Qwen3-14B", 40, 5120, 40, 8, 128, 17408, 151936, 40960),
        ModelShape("Qwen3-32B", 64, 5120, 64, 8, 128, 25600, 151936, 40960),
        ModelShape("Qwen3-30B-A3B", 48, 2048, 32, 4, 128, 768, 151936, 40960, experts=128, top_k=8),
        ModelShape("Qwen2.5-3B", 36, 2048, 16, 2, 128, 11008, 151936, 32768, tied_embeddings=True),
        ModelShape("Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, 131072),
        ModelShape("Llama-3.1-70B", 80, 8192, 64, 8, 128, 28672, 128256, 131072),
        ModelShape("gpt-oss-20b", 24, 2880, 64, 8, 64, 2880, 201088, 131072, experts=32, top_k=4,
                   precision="mxfp4"),
    )
}  # fmt: skip


def model(name: str) -> ModelShape:
    """Return the shape of a model by name; an organisation prefix, "-Instruct" and case do not matter.

    >>> model("meta-llama/Llama-3.1-8B-Instruct").layers
    32
    """
    plain = name.rsplit("/", 1)[-1].lower()
    for tail in ("-instruct", "-base", "-fp8"):
        plain = plain.removesuffix(tail)
    for key, shape in MODELS.items():
        if key.lower() == plain:
            return shape
    raise InputError(nearest(name, MODELS, what="model"))
