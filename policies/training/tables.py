"""Models of the predictors that count: the recorded sequences themselves, as numbers, to be counted at load."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.training import modelfile
from policies.training.ngrams import NgramCounts
from policies.training.sequences import Sequences
from traces.errors import InputError

KINDS = ("markov", "knn")


def tensors(sequences: Sequences) -> dict[str, NDArray[Any]]:
    """Return the tensors of a counting model: `agents` int32[total], `ptr` int64[workflows + 1]."""
    lengths = [len(r) for r in sequences.runs]
    return {
        "agents": np.array([a for r in sequences.runs for a in r], dtype=np.int32),
        "ptr": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
    }


def files(model: str | None) -> tuple[Path, ...]:
    """Return the files of a model option."""
    return modelfile.paths(model) if model is not None else ()


def check(model: str | None) -> None:
    """Raise InputError for a model that is missing, damaged or of another kind; None is no model and fine."""
    if model is not None:
        _load(model)


def fill_counts(counts: NgramCounts, model: str, agents: tuple[str, ...]) -> None:
    """Count a model's sequences, agents matched by name. Mutates `counts`.

    Raises InputError when the model is of another kind, damaged, or does not know an agent of the host.
    """
    card, content = _load(model)
    to_host = np.array([*match(card.agents, agents, model), -1], dtype=np.int64)
    ptr, index = content.get("ptr"), content.get("agents")
    if (
        ptr is None or index is None or ptr.ndim != 1 or index.ndim != 1 or len(ptr) == 0
        or ptr[0] != 0 or ptr[-1] != len(index) or np.any(np.diff(ptr) < 0)
        or np.any((index < -1) | (index >= len(card.agents)))
    ):  # fmt: skip
        raise InputError(f"model={model}: its tensors are not recorded sequences")
    runs = to_host[index].tolist()
    bounds = ptr.tolist()
    for start, stop in pairwise(bounds):
        counts.add_sequence(tuple(runs[start:stop]))


def _load(model: str) -> tuple[modelfile.Card, modelfile.Tensors]:
    card, content = modelfile.load(model)
    if card.predictor not in KINDS:
        raise InputError(f"model={model}: it is a {card.predictor}, expected one of {', '.join(KINDS)}")
    return card, content


def match(known: tuple[str, ...], agents: tuple[str, ...], model: str) -> list[int]:
    """Return the host's index of each agent the model knows, -1 where the host has none of that name.

    Raises InputError for an agent of the host that the model was not trained on.
    """
    strange = [a for a in agents if a not in set(known)]
    if strange:
        raise InputError(
            f"model={model}: not trained on agent {strange[0]!r}; it knows: {', '.join(known[:12]) or '(none)'}"
        )
    place = {name: i for i, name in enumerate(agents)}
    return [place.get(name, -1) for name in known]
