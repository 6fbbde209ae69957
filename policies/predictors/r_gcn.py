"""A relational graph convolution over the call graph: forward, backward and self edges have weights of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.training.network import Array, Batch, Drop, Network, Sizes, Weights, head, head_shapes, relu

_LAYERS = 2


@dataclass(frozen=True)
class RelationalGcn(Network):
    """Two relational layers over the offline transition matrix; the current agent, the mean of the prefix, the text.

    model     file that `python -m experiments train` wrote
    horizon   steps ahead, at most those it was trained for
    """

    label = "R-GCN forecast"
    source = "PBKV, appendix C (R-GCN baseline); Schlichtkrull et al. 2018"

    @classmethod
    def shapes(cls, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights."""
        d = sizes.hidden
        layers = {f"{edge}_{i}": (d, d) for edge in ("self", "forward", "backward") for i in range(_LAYERS)}
        return {
            "embed": (sizes.agents + 1, d),
            **layers,
            "text": (sizes.text, d),
            "text_b": (d,),
            **head_shapes(sizes, 3 * d),
        }

    @classmethod
    def prepared(cls, w: Weights) -> dict[str, NDArray[Any]]:
        """Return the weights with the agents' representations, which no prefix changes."""
        return {**w, "nodes": np.asarray(_nodes(w))}

    @classmethod
    def logits(cls, xp: Any, w: Weights, batch: Batch, drop: Drop) -> Array:
        """Return [B, K * (A + 1)]."""
        nodes = w["nodes"] if "nodes" in w else _nodes(w)
        there = (batch.agents < nodes.shape[0] - 1)[:, :, None]
        mean = (nodes[batch.agents] * there).sum(axis=1) / (there.sum(axis=1) + 1e-9)
        return head(xp, w, [nodes[batch.current], mean, relu(batch.text @ w["text"] + w["text_b"])], drop)


def _nodes(w: Weights) -> Array:
    h, edges = w["embed"], w["transition"]
    for i in range(_LAYERS):
        h = relu(h @ w[f"self_{i}"] + edges @ h @ w[f"forward_{i}"] + edges.T @ h @ w[f"backward_{i}"])
    return h
