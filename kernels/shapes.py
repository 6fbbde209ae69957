"""Shapes of a decode step: the model's widths, and the bounds that a captured graph covers."""

from __future__ import annotations

from dataclasses import dataclass, fields

from traces.errors import InputError


@dataclass(frozen=True)
class DecodeShape:
    """Widths of a dense decoder with grouped-query attention, rotary positions and a gated MLP.

    hidden         width of the residual stream (H of the plan)
    heads          query heads (N_h); kv_heads divides it
    head_dim       numbers a head, a power of two
    intermediate   width of the gated MLP (I)
    rope_theta     base of the rotary frequencies
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    rope_theta: float = 1e6
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name != "name" and value <= 0:
                raise InputError(f"shape {self.name}: {f.name} {value}; allowed: above 0")
        if self.heads % self.kv_heads:
            raise InputError(
                f"shape {self.name}: heads {self.heads}; allowed: a multiple of kv_heads {self.kv_heads}"
            )
        if self.head_dim & (self.head_dim - 1) or self.head_dim < 16:
            raise InputError(
                f"shape {self.name}: head_dim {self.head_dim}; allowed: a power of two, 16 or more"
            )
        if max(self.vocab, 2 * self.intermediate, self.qkv) * max(self.hidden, self.intermediate) >= 1 << 31:
            raise InputError(
                f"shape {self.name}: a weight matrix has 2^31 numbers or more; offsets are int32"
            )

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def attention(self) -> int:
        """Width of the attention's output: heads times head_dim."""
        return self.heads * self.head_dim

    @property
    def qkv(self) -> int:
        """Width of the fused projection: queries, keys, values."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim


# The dimensions the paper evaluates (section 4.1): Qwen2.5-3B, with random weights.
QWEN25_3B = DecodeShape("Qwen2.5-3B", 36, 2048, 16, 2, 128, 11008, 151936)


@dataclass(frozen=True)
class Bounds:
    """What a graph is captured for: every step within is served by it.

    batch      sequences (B_max)
    draft      new tokens of one sequence (d_max)
    context    KV tokens of one sequence, the step's own included
    rows       tokens of a step (M_max); batch x draft unless drafts are ragged
    """

    batch: int
    draft: int
    context: int
    rows: int = 0

    def __post_init__(self) -> None:
        for name in ("batch", "draft", "context"):
            if getattr(self, name) < 1:
                raise InputError(f"bounds: {name} {getattr(self, name)}; allowed: 1 or more")
        if self.context < self.draft:
            raise InputError(f"bounds: context {self.context}; allowed: the draft {self.draft} or more")
        if not self.rows:
            object.__setattr__(self, "rows", self.batch * self.draft)
        if not 1 <= self.rows <= self.batch * self.draft:
            raise InputError(
                f"bounds: rows {self.rows}; allowed: 1 to batch x draft = {self.batch * self.draft}"
            )

    def covers(self, other: Bounds) -> bool:
        """Say whether every step within `other` is within these bounds."""
        return all(getattr(self, f.name) >= getattr(other, f.name) for f in fields(self))
