"""One transformer layer over the agents so far; the newest position answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from policies.training.network import (
    Array,
    Batch,
    Drop,
    Network,
    Sizes,
    Weights,
    head,
    head_shapes,
    normed,
    relu,
    softmax,
)


@dataclass(frozen=True)
class Transformer(Network):
    """Embeddings with places counted from the newest, one attention head, a feed-forward block, the text stream.

    model     file that `python -m experiments train` wrote
    horizon   steps ahead, at most those it was trained for
    """

    label = "transformer forecast"
    source = "PBKV, appendix C (one-layer transformer baseline)"

    @classmethod
    def shapes(cls, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights."""
        d = sizes.hidden
        return {
            "embed": (sizes.agents + 1, d),
            "embed_place": (sizes.history, d),
            "query": (d, d),
            "key": (d, d),
            "value": (d, d),
            "up": (d, 2 * d),
            "up_b": (2 * d,),
            "down": (2 * d, d),
            "down_b": (d,),
            "text": (sizes.text, d),
            "text_b": (d,),
            **head_shapes(sizes, 2 * d),
        }

    @classmethod
    def logits(cls, xp: Any, w: Weights, batch: Batch, drop: Drop) -> Array:
        """Return [B, K * (A + 1)]. Only the newest position's output is used, so only its query is made."""
        d = w["query"].shape[0]
        x = w["embed"][batch.agents] + w["embed_place"]
        near = normed(xp, x)
        query = near[:, -1] @ w["query"]
        scores = ((near @ w["key"]) * query[:, None, :]).sum(axis=-1) / math.sqrt(d)
        share = softmax(xp, scores, batch.agents < w["embed"].shape[0] - 1)
        last = x[:, -1] + (share[:, :, None] * (near @ w["value"])).sum(axis=1)
        last = last + relu(normed(xp, last) @ w["up"] + w["up_b"]) @ w["down"] + w["down_b"]
        return head(xp, w, [normed(xp, last), relu(batch.text @ w["text"] + w["text_b"])], drop)
