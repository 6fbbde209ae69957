"""PBKV's predictor: the agent in its call graph, attention over the prefix, and the text stream, fused."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.training.network import (
    Array,
    Batch,
    Drop,
    Network,
    Sizes,
    Weights,
    head,
    head_shapes,
    relu,
    softmax,
)

_LAYERS = 2


@dataclass(frozen=True)
class GraphSage(Network):
    """Equations 3 and 4 of the paper; the head emits all K steps in one pass, END an outcome like any other.

    model     file that `python -m experiments train` wrote
    horizon   steps ahead, at most those it was trained for
    """

    label = "GraphSAGE forecast"
    source = "PBKV, section 4.1 and appendix B; the text stream is a stand-in (policies/training/text.py)"

    @classmethod
    def shapes(cls, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights."""
        d = sizes.hidden
        return {
            "embed": (sizes.agents + 1, d),
            **{f"sage_{i}": (2 * d, d) for i in range(_LAYERS)},
            "query": (d, d),
            "text": (sizes.text, d),
            "text_b": (d,),
            **head_shapes(sizes, 3 * d),
        }

    @classmethod
    def prepared(cls, w: Weights) -> dict[str, NDArray[Any]]:
        """Return the weights with H(2), which no prefix changes."""
        return {**w, "nodes": np.asarray(_nodes(np, w))}

    @classmethod
    def logits(cls, xp: Any, w: Weights, batch: Batch, drop: Drop) -> Array:
        """Return [B, K * (A + 1)]. h_path is 0 for a workflow's first agent, which has no prefix."""
        nodes = w["nodes"] if "nodes" in w else _nodes(xp, w)
        current = nodes[batch.current]
        before = batch.agents[:, :-1]
        prefix = nodes[before]
        scores = (prefix * (current @ w["query"])[:, None, :]).sum(axis=-1) / math.sqrt(nodes.shape[1])
        share = softmax(xp, scores, before < nodes.shape[0] - 1)  # equation 4
        path = (share[:, :, None] * prefix).sum(axis=1)
        return head(xp, w, [current, path, relu(batch.text @ w["text"] + w["text_b"])], drop)


def _nodes(xp: Any, w: Weights) -> Array:
    """Return H(2) [A + 1, d] of equation 3."""
    h = w["embed"]
    for i in range(_LAYERS):
        h = relu(xp.concatenate([h, w["transition"] @ h], axis=-1) @ w[f"sage_{i}"])
    return h
