"""A multi-layer perceptron over the last agents, each at its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from policies.training.network import Array, Batch, Drop, Network, Sizes, Weights, head, head_shapes, relu

_SEEN = 8
_WIDTH = 16


@dataclass(frozen=True)
class Mlp(Network):
    """Embeddings of the last eight agents side by side, the text stream, three layers.

    model     file that `python -m experiments train` wrote
    horizon   steps ahead, at most those it was trained for
    """

    label = "MLP forecast"
    source = "PBKV, appendix C (MLP baseline)"

    @classmethod
    def shapes(cls, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights."""
        seen = min(_SEEN, sizes.history)
        return {
            "embed": (sizes.agents + 1, _WIDTH),
            "text": (sizes.text, sizes.hidden),
            "text_b": (sizes.hidden,),
            "deep": (seen * _WIDTH, 2 * sizes.hidden),
            "deep_b": (2 * sizes.hidden,),
            **head_shapes(sizes, 3 * sizes.hidden),
        }

    @classmethod
    def logits(cls, xp: Any, w: Weights, batch: Batch, drop: Drop) -> Array:
        """Return [B, K * (A + 1)]."""
        seen = w["deep"].shape[0] // _WIDTH
        x = w["embed"][batch.agents[:, -seen:]].reshape(-1, seen * _WIDTH)
        x = relu(x @ w["deep"] + w["deep_b"])
        return head(xp, w, [x, relu(batch.text @ w["text"] + w["text_b"])], drop)
