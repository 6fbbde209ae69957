"""PBKV's part of the report card: its studies, which targets read them, and the judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.cards.family import Family
from experiments.cards.pbkv import controls, course, engine, forecasts, micro, recorded, sweeps, tables
from experiments.cards.pbkv.studies import STUDIES
from experiments.cards.results import Results
from experiments.cards.rows import Row

# Studies that a target's row reads.
NEEDS: dict[str, tuple[str, ...]] = {
    **{id: tuple(s for s in (*pair, tables.HALF.get(id)) if s) for id, pair in tables.CELLS.items()},
    "R50": tuple(s for pair in tables.CELLS.values() for s in (pair[0], engine.POOLS[pair[0]])),
    "R51": ("concurrency",), "R52": ("predictor", "hover_32b", "predictor_half", "hover_half_32b"), "R53": ("horizon",),
    "R54": ("hover_14b", "hover_shared_14b"), "R58": ("gamma",), "R59": ("rho",), "R60": ("noise",),
    "R63": ("hover_32b",),
    "P3": tuple(s for pair in tables.CELLS.values() for s in (pair[0], engine.POOLS[pair[0]])),
    "P5": ("noise",), "P9": ("controls", "ample"),
    "B1": tuple(s for study, (_, table) in controls.MATRIX.items() for s in (study, table)),
}  # fmt: skip


def judge(studies: Mapping[str, Results], wanted: Sequence[str], *, quick: bool) -> list[Row]:
    """Return the rows of the targets asked for, from the studies that were run."""
    rows = list(tables.rows(studies)) if any(id in tables.CELLS or id == "R50" for id in wanted) else []
    accuracies: dict[str, float] = {}
    predicted = [studies[s].plan for s in ("predictor", "predictor_half") if s in studies]
    if predicted:
        accuracies = forecasts.step_one([a.policies["predictors"] for a in predicted[0].arms])
    rows += sweeps.rows(studies, accuracies)
    rows += engine.rows(studies, tuple(wanted)) + controls.rows(studies, tuple(wanted))
    if {"R54", "R63"} & set(wanted):
        rows += course.rows(studies)
    if {"R55", "R56", "R57"} & set(wanted):
        rows += forecasts.rows(forecasts.table(2 if quick else 10))
    rows += recorded.rows(wanted, quick=quick)
    if {"R61", "R62"} & set(wanted):
        rows += micro.rows(200 if quick else 2000)
    return rows


FAMILY = Family("pbkv", STUDIES, NEEDS, judge)
