"""From recorded sequences to a model file, for every predictor that can be trained."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies import registry
from policies.training import modelfile, tables
from policies.training.network import Network, Sizes
from policies.training.sequences import Sequences, windows
from traces import draws
from traces.errors import InputError, nearest

_WATCHED = 0.15  # of the workflows to learn from: they choose the epoch


@dataclass(frozen=True)
class FitConfig:
    """How a network is fitted.

    seed            draws the start, the order of batches, dropout, and which workflows choose the epoch
    epochs          passes at most; patience: passes without a lower loss before it stops
    batch           invocations a step
    hidden          width of a stream
    history         newest agents seen
    horizon         steps ahead
    dropout         share of the head's inputs left out while fitting
    """

    seed: int = 0
    epochs: int = 40
    patience: int = 6
    batch: int = 256
    learning_rate: float = 0.003
    weight_decay: float = 0.0001
    hidden: int = 64
    history: int = 32
    horizon: int = 3
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name, low, high in (
            ("epochs", 1, 10_000), ("patience", 1, 10_000), ("batch", 1, 65_536), ("hidden", 1, 1024),
            ("history", 1, 256), ("horizon", 1, 16), ("learning_rate", 1e-7, 1.0), ("weight_decay", 0.0, 1.0),
            ("dropout", 0.0, 0.9),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name}={getattr(self, name)}, allowed: {low} to {high}")


def trainable() -> tuple[str, ...]:
    """Return the names of the predictors that can be trained, those that count first."""
    learned = [n for n in registry.names("predictors") if registry.find("predictors", n).trained]  # type: ignore[attr-defined]
    return (*tables.KINDS, *learned)


def needs_torch(predictor: str) -> bool:
    """Say whether training this predictor takes torch; raises InputError for one that cannot be trained."""
    if predictor not in trainable():
        raise InputError(nearest(predictor, trainable(), what="trainable predictor"))
    return predictor not in tables.KINDS


def train(
    predictor: str,
    sequences: Sequences,
    config: FitConfig,
    model: Path,
    trained_on: Mapping[str, Any] | None = None,
) -> str:
    """Learn from all of `sequences` and write the model; return the digest of its tensors.

    Hold workflows out before (`policies.training.sequences.split`). Raises InputError for an unknown predictor,
    for sequences with nothing to learn from, and where torch is missing and needed.
    """
    if needs_torch(predictor):
        history = min(config.history, max(map(len, sequences.runs), default=1))
        sizes = Sizes(len(sequences.agents), config.horizon, history, config.hidden)
        tensors, spec = fitted(predictor, sequences, config, sizes), asdict(sizes)
    else:
        tensors, spec = tables.tensors(sequences), {}
    about = {
        **(trained_on or {}),
        "workflows": len(sequences),
        "sequences_digest": sequences.digest(),
        "fit": asdict(config) if spec else {},
    }
    return modelfile.save(model, modelfile.Card(predictor, sequences.agents, spec, about), tensors)


def fitted(predictor: str, sequences: Sequences, config: FitConfig, sizes: Sizes) -> dict[str, NDArray[Any]]:
    """Return the fitted weights of a network."""
    if len(sequences) < 8:
        raise InputError(f"{len(sequences)} workflows to learn from, expected at least 8")
    try:
        torch_fit = importlib.import_module("policies.predictors._torch_fit")
    except ModuleNotFoundError as e:
        if e.name != "torch":
            raise
        raise InputError(
            f"predictor={predictor}: training needs torch (pip install 'foreserve[train]'); serving does not"
        ) from None
    network = registry.find("predictors", predictor)
    assert issubclass(network, Network)
    order = np.argsort(draws.bits_array(config.seed, "watched", np.arange(len(sequences)))).tolist()
    watched = max(1, round(_WATCHED * len(order)))
    watch, learn = order[:watched], order[watched:]
    weights: dict[str, NDArray[Any]] = torch_fit.fit(
        network,
        sizes,
        {"transition": transition(sequences.take(learn))},
        windows(sequences.take(learn), sizes.history, sizes.horizon),
        windows(sequences.take(watch), sizes.history, sizes.horizon),
        config,
    )
    return weights


def transition(sequences: Sequences) -> NDArray[np.float32]:
    """Return float32[A + 1, A + 1]: the row-normalised matrix of which agent followed which; A is "unnamed"."""
    n = len(sequences.agents)
    counts = np.zeros((n + 1, n + 1))
    for run in sequences.runs:
        index = np.array([a if a >= 0 else n for a in run])
        np.add.at(counts, (index[:-1], index[1:]), 1)
    total = counts.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = counts / np.maximum(total, 1)
    return shares.astype(np.float32)
