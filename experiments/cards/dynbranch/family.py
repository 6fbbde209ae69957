"""DynBranch's part of the report card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.cards.dynbranch import blind, main, sweeps
from experiments.cards.dynbranch.studies import STUDIES
from experiments.cards.family import Family
from experiments.cards.results import Results
from experiments.cards.rows import Row

NEEDS: dict[str, tuple[str, ...]] = {
    "R1": (), "R2": (), "R3": (), "R4": (), "R5": ("main",), "R6": ("main",), "R7": ("main",), "R8": ("commodity",),
    "R9": ("main",), "R10": ("fanout",), "R11": ("fanout",), "R12": ("depth",), "R13": ("replay",),
    "R14": ("model_size",), "R15": ("backbones",), "R16": ("drafter",), "R17": ("mix",), "R18": ("alone",), "R19": (),
    "R20": ("gates",), "R21": ("gates",), "R22": ("load",), "R23": ("main",),
}  # fmt: skip


def judge(studies: Mapping[str, Results], wanted: Sequence[str], *, quick: bool) -> list[Row]:
    """Return the rows of the targets asked for, from the studies that were run."""
    makers = {**blind.ROWS, **main.ROWS, **sweeps.ROWS}
    rows = []
    for id in wanted:
        if all(s in studies for s in NEEDS[id]):
            rows.append(makers[id](studies))
    return rows


FAMILY = Family("dynbranch", STUDIES, NEEDS, judge)
