"""A family of targets: what a package under `experiments/cards/` offers as `FAMILY` in its `family.py`."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import experiments.cards
from experiments.cards.results import Results
from experiments.cards.rows import Row
from experiments.cards.study import Study
from traces.errors import InputError, nearest


class Judge(Protocol):
    """Turns the studies that were run into rows of the card."""

    def __call__(self, studies: Mapping[str, Results], wanted: Sequence[str], *, quick: bool) -> list[Row]:
        """Return the rows of the targets asked for; a study that is missing gives no row."""
        ...


@dataclass(frozen=True)
class Family:
    """One paper's part of the report card.

    name     the word after `reproduce`; its published numbers stand in `experiments/data/targets/<name>.json`
    studies  the experiments behind it, by name
    needs    the studies that the row of a target reads; targets that need none are judged without runs
    judge    what turns results into rows
    """

    name: str
    studies: Mapping[str, Study]
    needs: Mapping[str, tuple[str, ...]]
    judge: Judge


@functools.cache
def names() -> tuple[str, ...]:
    """Return the families there are: packages under `experiments/cards/`. Adding one touches nothing else."""
    found = pkgutil.iter_modules(experiments.cards.__path__)
    return tuple(sorted(m.name for m in found if m.ispkg))


def family(name: str) -> Family:
    """Return a family; InputError with the nearest name."""
    if name not in names():
        raise InputError(nearest(name, names(), what="reproduction"))
    found = importlib.import_module(f"experiments.cards.{name}.family").FAMILY
    assert isinstance(found, Family)
    return found
