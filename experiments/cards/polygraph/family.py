"""PolyGraph's part of the report card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.cards.family import Family
from experiments.cards.polygraph import tables
from experiments.cards.polygraph.studies import STUDIES
from experiments.cards.results import Results
from experiments.cards.rows import Row

NEEDS: dict[str, tuple[str, ...]] = {
    "R40": (), "R41": ("table_h200",), "R42": ("table_law", "table_h200", "load"), "R43": ("fixed_law", "fixed_h200"),
    "R44": (), "R45": ("buckets",),
}  # fmt: skip


def judge(studies: Mapping[str, Results], wanted: Sequence[str], *, quick: bool) -> list[Row]:
    """Return the rows of the targets asked for, from the studies that were run."""
    return [row for row in tables.rows(studies) if row.id in wanted]


FAMILY = Family("polygraph", STUDIES, NEEDS, judge)
