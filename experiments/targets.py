"""Published results, the one place where they stand: `experiments/data/targets/`. Only `reproduce` reads them."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from traces.errors import InputError, nearest


@dataclass(frozen=True)
class Target:
    """One published result.

    id       R46 and so on; a letter tells cells of one target apart
    place    figure or table
    setting  what was run
    values   the numbers, by name
    exact    counts that follow from the setting alone: nothing could be tuned to them
    """

    id: str
    place: str
    setting: str
    values: dict[str, Any]
    optional: bool = False
    exact: bool = False


@functools.cache
def targets(family: str | None = None) -> dict[str, Target]:
    """Return the targets of a family, or of all, by id, in the files' order."""
    folder = files("experiments") / "data" / "targets"
    names = [f"{family}.json"] if family is not None else sorted(f.name for f in folder.iterdir())
    out: dict[str, Target] = {}
    for name in names:
        body = json.loads((folder / name).read_text(encoding="utf-8"))
        for id, t in body["targets"].items():
            assert id not in out, f"{name}: {id} stands in two files"
            marks = {mark: t.get(mark, False) for mark in ("optional", "exact")}
            out[id] = Target(id, t["place"], t["setting"], t["values"], **marks)
    return out


def target(id: str) -> Target:
    """Return one target; InputError with the nearest id."""
    known = targets()
    if id not in known:
        raise InputError(nearest(id, known, what="target"))
    return known[id]


def written(id: str) -> str:
    """Return a target's numbers as one line of text."""
    return _text(target(id).values)


def numbers(value: Any) -> list[int | float]:
    """Return every number in nested values, in order.

    >>> numbers({"a": [1.5, 2], "b": {"c": 3}})
    [1.5, 2, 3]
    """
    if isinstance(value, dict):
        return [n for v in value.values() for n in numbers(v)]
    if isinstance(value, list):
        return [n for v in value for n in numbers(v)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{k} {_text(v)}" for k, v in value.items())
    if isinstance(value, list):
        return "/".join(_text(v) for v in value)
    return str(value)
