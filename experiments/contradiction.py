"""Refuses words that name two models: one of them would be dropped without a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from traces.errors import InputError

_ENGINE = "engine"


def check_models(
    values: Mapping[str, Any], axes: Mapping[str, Sequence[Any]], engine_model: str | None
) -> None:
    """Raise InputError where two words of a command line name different models, saying which two.

    values, axes: what the words say of `profile` and `model`, alone or compared. engine_model: `--model` of the
    engine's arguments. Only words count: a config file's profile is there to be replaced.
    """
    named = _named(values, axes, engine_model)
    for (one, some), (other, more) in combinations(named.items(), 2):
        for a in some:
            for b in more:
                if a != b and _meant(one, a) != _meant(other, b):
                    raise InputError(
                        f"{_word(one, a)} and {_word(other, b)} name two models, {_meant(one, a)} and "
                        f"{_meant(other, b)}: leave out one of the two"
                    )


def _named(
    values: Mapping[str, Any], axes: Mapping[str, Sequence[Any]], engine_model: str | None
) -> dict[str, list[str]]:
    found = {}
    for name in ("profile", "model"):
        if several := [str(v) for v in axes.get(name, [values.get(name)]) if v is not None]:
            found[name] = several
    return found if engine_model is None else found | {_ENGINE: [engine_model]}


def _word(called: str, value: str) -> str:
    return f'engine="--model {value}"' if called == _ENGINE else f"{called}={value}"


def _meant(called: str, value: str) -> str:
    """Return the name of the model that a profile, a model's name or its config.json means."""
    from calibration import catalog, models
    from calibration.config_json import from_config_json

    if called == "profile":
        return str(catalog.open(value).identity.get("model", value))
    path = Path(value) / "config.json" if Path(value).is_dir() else Path(value)
    if path.suffix == ".json":
        return from_config_json(path)[0].name
    try:
        return models.model(value).name
    except InputError:
        return value.rsplit("/", 1)[-1]
