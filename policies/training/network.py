"""What the learned predictors share: a file of weights, a forward pass, and how both meet a host.

The forward pass is written once, against the functions that numpy and torch have in common: it is fitted under torch
(`_torch_fit.py`) and served by numpy, so a trained predictor runs in the base install.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from policies.api import HostInfo, Predictor, Profile, WorkflowView
from policies.training import modelfile
from policies.training.tables import match
from policies.training.text import DIMS
from traces import draws
from traces.errors import InputError

Array = Any  # an array of numpy or a tensor of torch
Weights = Mapping[str, Array]
Drop = Callable[[Array], Array]

_SIZES_MAX = {"agents": 4096, "horizon": 16, "history": 256, "hidden": 1024, "text": 4096}


@dataclass(frozen=True)
class Sizes:
    """Sizes a network is built from: agents A, steps K, newest agents it sees, hidden width, text columns."""

    agents: int
    horizon: int = 3
    history: int = 32
    hidden: int = 64
    text: int = DIMS

    @property
    def outputs(self) -> int:
        """Width of the head: K rows of A + 1."""
        return self.horizon * (self.agents + 1)


@dataclass(frozen=True)
class Batch:
    """B prefixes. agents int64[B, history], A where there is none; text float32[B, text]."""

    agents: Array
    text: Array

    @property
    def current(self) -> Array:
        """Return int64[B], the newest agents."""
        return self.agents[:, -1]


@dataclass
class Served:
    """A model in a host: weights as numpy arrays, and where its agents are among the host's.

    columns   int64[A + 1]: the host's column of each of the model's, -1 for agents the host lacks
    rows      int64[host agents + 1]: the model's index of each of the host's agents; the last is "none"
    """

    weights: dict[str, NDArray[Any]]
    sizes: Sizes
    columns: NDArray[np.int64]
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class Network(Predictor[Served]):
    """A predictor with trained weights.

    model     file that `python -m experiments train` wrote
    horizon   steps ahead, at most those it was trained for
    """

    model: str | None = None
    horizon: int = 3
    trained: ClassVar[bool] = True
    reads_text: ClassVar[bool] = True

    def __post_init__(self) -> None:
        name = type(self).__module__.rpartition(".")[2]
        if self.model is None:
            raise InputError(
                f"it has to be trained: python -m experiments train predictor={name} workload=hover --out FILE"
                f"{modelfile.SUFFIX}, then give predictor.model=FILE{modelfile.SUFFIX}"
            )
        card, weights = modelfile.load(self.model)
        if card.predictor != name:
            raise InputError(f"model={self.model}: it is a {card.predictor}, not a {name}")
        sizes = _sizes(card, self.model)
        if not 1 <= self.horizon <= sizes.horizon:
            raise InputError(
                f"horizon={self.horizon}: {self.model} was trained for {sizes.horizon}, allowed: 1 to {sizes.horizon}"
            )
        expected = {**self.shapes(sizes), **constants(sizes)}
        got = {k: v.shape for k, v in weights.items()}
        if got != expected:
            odd = sorted(k for k in expected.keys() | got.keys() if expected.get(k) != got.get(k))[0]
            raise InputError(
                f"model={self.model}: tensor {odd!r} has shape {got.get(odd)}, expected {expected.get(odd)}"
            )

    @classmethod
    @abstractmethod
    def shapes(cls, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights to be learned. A name that ends in `_b` starts at zero."""

    @classmethod
    @abstractmethod
    def logits(cls, xp: Any, w: Weights, batch: Batch, drop: Drop) -> Array:
        """Return [B, K * (A + 1)] before the softmax. xp: numpy or torch. drop: dropout, or the identity."""

    @classmethod
    def prepared(cls, w: Weights) -> dict[str, NDArray[Any]]:
        """Return the weights with what depends on them alone computed once, for serving."""
        return dict(w)

    def files(self) -> tuple[Path, ...]:
        """Return the model's two files."""
        return modelfile.paths(self._file())

    def new_state(self, host: HostInfo) -> Served:
        """Return the model matched to the host's agents; InputError when it was not trained on one of them."""
        card, weights = modelfile.load(self._file())
        sizes = _sizes(card, self._file())
        columns = match(card.agents, host.agents, self._file())
        rows = np.full(len(host.agents) + 1, sizes.agents, dtype=np.int64)
        for i, column in enumerate(columns):
            if column >= 0:
                rows[column] = i
        return Served(
            self.prepared(weights), sizes, np.array([*columns, len(host.agents)], dtype=np.int64), rows
        )

    def forecast(self, state: Served, workflow: WorkflowView) -> NDArray[np.float32]:
        """Return float32[horizon, agents + 1]. Does not mutate."""
        return self.forecasts(state, [workflow])[0]

    def forecasts(self, state: Served, workflows: Sequence[WorkflowView]) -> list[NDArray[np.float32]]:
        """Return the forecasts of a batch, in its order. Does not mutate."""
        sizes, n = state.sizes, len(workflows)
        agents = np.full((n, sizes.history), sizes.agents, dtype=np.int64)
        text = np.zeros((n, sizes.text), dtype=np.float32)
        for i, view in enumerate(workflows):
            past = view.agents[-sizes.history :]
            agents[i, sizes.history - len(past) :] = state.rows[list(past)]
            if view.features is not None:
                text[i] = view.features
        z = self.logits(np, state.weights, Batch(agents, text), _keep)
        p = softmax(np, z.reshape(n, sizes.horizon, sizes.agents + 1))[:, : self.horizon]
        known = state.columns >= 0
        out = np.zeros((n, self.horizon, len(state.rows)), dtype=np.float32)
        out[:, :, state.columns[known]] = p[:, :, known]
        # The mass of agents this host does not have goes to those it has; with none left, to END.
        total = out.sum(axis=2, keepdims=True)
        out[:, :, -1:] += total <= 0
        return list(out / np.where(total > 0, total, 1))

    def cost_ps(self, profile: Profile, workflows: int) -> int:
        """Return what `train --measure` found for a batch of this size, in ps; 0 for a model not measured."""
        return modelfile.cost_ps(self.model, workflows)

    def _file(self) -> str:
        assert self.model is not None
        return self.model


def constants(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensors that are counted rather than learned."""
    return {"transition": (sizes.agents + 1, sizes.agents + 1)}


def start_weights(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, NDArray[np.float32]]:
    """Return the weights a fit starts from: uniform in +-sqrt(3 / fan_in), drawn by (seed, name, place)."""
    out = {}
    for name, shape in shapes.items():
        if name.endswith("_b"):
            out[name] = np.zeros(shape, dtype=np.float32)
            continue
        luck = draws.uniform_array(seed, f"start {name}", np.arange(math.prod(shape)))
        bound = math.sqrt(3 / shape[0]) if not name.startswith("embed") else 1.0
        out[name] = ((2 * luck - 1) * bound).reshape(shape).astype(np.float32)
    return out


def relu(x: Array) -> Array:
    """Return max(x, 0)."""
    return x * (x > 0)


def softmax(xp: Any, x: Array, mask: Array | None = None) -> Array:
    """Return the softmax over the last axis; where `mask` is 0 the share is 0, and a row of zeros stays zeros."""
    e = xp.exp(x - xp.amax(x, axis=-1, keepdims=True))
    if mask is None:
        return e / e.sum(axis=-1, keepdims=True)
    e = e * mask
    return e / (e.sum(axis=-1, keepdims=True) + 1e-9)


def normed(xp: Any, x: Array) -> Array:
    """Return x with mean 0 and variance 1 over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / xp.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)


def head(xp: Any, w: Weights, parts: Sequence[Array], drop: Drop) -> Array:
    """Return the two-layer head's output for the concatenated streams; weights `head_1`, `head_2`."""
    x = drop(xp.concatenate(list(parts), axis=-1))
    x = drop(relu(x @ w["head_1"] + w["head_1_b"]))
    return x @ w["head_2"] + w["head_2_b"]


def head_shapes(sizes: Sizes, width: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a head whose streams are `width` wide together."""
    inner = 2 * sizes.hidden
    return {
        "head_1": (width, inner),
        "head_1_b": (inner,),
        "head_2": (inner, sizes.outputs),
        "head_2_b": (sizes.outputs,),
    }


def _keep(x: Array) -> Array:
    return x


def _sizes(card: modelfile.Card, model: str) -> Sizes:
    for name, most in _SIZES_MAX.items():
        if not 0 <= card.spec.get(name, -1) <= most or (name != "agents" and card.spec[name] == 0):
            raise InputError(f"model={model}: its card's spec.{name} is missing or not within 1 to {most}")
    if card.spec["agents"] != len(card.agents):
        raise InputError(f"model={model}: its card lists {len(card.agents)} agents, spec.agents differs")
    return Sizes(**{name: card.spec[name] for name in _SIZES_MAX})
