"""Multi-head latent attention: keys and values of all heads are made from one short vector a token.

The cache holds that vector and one rotary key shared by all heads, kv_lora_rank + qk_rope_head_dim numbers a layer
(DeepSeek-V2, arXiv 2405.04434, section 2.1). In the absorbed form the up-projections of keys and values are
multiplied into the query and the output, so that attention reads the cache as it lies: one KV head whose keys
are kv_lora_rank + qk_rope_head_dim wide and whose values are kv_lora_rank wide.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Latent:
    """Widths of latent attention, named as config.json names them.

    kv_lora_rank       width of the cached vector
    qk_rope_head_dim   width of the cached rotary key
    qk_nope_head_dim   width of a head's keys without the rotary part
    v_head_dim         width of a head's values
    q_lora_rank        width that queries are compressed to; 0 where they are not
    """

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int = 0

    @property
    def cached(self) -> int:
        """Numbers that one layer caches a token."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def norm_params(self) -> int:
        """Norm weights of one layer's compressed vectors."""
        return self.kv_lora_rank + self.q_lora_rank

    def params(self, hidden: int, heads: int) -> int:
        """Return the parameters of one layer's attention for `heads` heads.

        The compressions are replicated on every GPU; what leads to and from heads is shared by heads.
        The absorbed form multiplies a token with the same number of weights.
        """
        key = self.qk_nope_head_dim + self.qk_rope_head_dim
        from_width = self.q_lora_rank or hidden
        query = hidden * self.q_lora_rank + from_width * heads * key
        compress = hidden * self.cached
        expand = self.kv_lora_rank * heads * (self.qk_nope_head_dim + self.v_head_dim)
        return query + compress + expand + heads * self.v_head_dim * hidden

    def pair_flops(self, heads: int) -> int:
        """Return FLOPs of one (query, key) pair in one layer, absorbed: scores, then the weighted sum."""
        return 2 * heads * (self.cached + self.kv_lora_rank)
