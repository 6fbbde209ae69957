"""A temporal convolutional network: causal convolutions over the agents, each layer reaching twice as far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from policies.training.network import Array, Batch, Drop, Network, Sizes, Weights, head, head_shapes, relu

_DILATIONS = (1, 2, 4)
_TAPS = 3


@dataclass(frozen=True)
class Tcn(Network):
    """Three residual layers with three taps at distances 1, 2, 4 (15 agents are seen), and the text stream.

    model     file that `python -m experiments train` wrote
    horizon   steps ahead, at most those it was trained for
    """

    label = "TCN forecast"
    source = "PBKV, appendix C (TCN baseline); Bai, Kolter and Koltun 2018"

    @classmethod
    def shapes(cls, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights."""
        d = sizes.hidden
        layers = {f"layer_{i}": (_TAPS * d, d) for i in range(len(_DILATIONS))}
        return {
            "embed": (sizes.agents + 1, d),
            "text": (sizes.text, d),
            "text_b": (d,),
            **layers,
            **{f"{name}_b": (d,) for name in layers},
            **head_shapes(sizes, 2 * d),
        }

    @classmethod
    def logits(cls, xp: Any, w: Weights, batch: Batch, drop: Drop) -> Array:
        """Return [B, K * (A + 1)]."""
        seen = min(batch.agents.shape[1], 1 + (_TAPS - 1) * sum(_DILATIONS))
        x = w["embed"][batch.agents[:, -seen:]]
        for i, distance in enumerate(_DILATIONS):
            taps = [x, _later(xp, x, distance), _later(xp, x, 2 * distance)]
            x = x + relu(xp.concatenate(taps, axis=-1) @ w[f"layer_{i}"] + w[f"layer_{i}_b"])
        return head(xp, w, [x[:, -1], relu(batch.text @ w["text"] + w["text_b"])], drop)


def _later(xp: Any, x: Array, steps: int) -> Array:
    """Return x moved `steps` places later, zeros in front."""
    steps = min(steps, x.shape[1])
    return xp.concatenate([x[:, :steps] * 0, x[:, : x.shape[1] - steps]], axis=1)
