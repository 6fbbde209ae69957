"""What the scheduler's side of the host tier asks of the worker's, and what the worker answers. Knows no tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Store(NamedTuple):
    """Copy a block of the pool to a slot of host memory; `content` names what it holds."""

    block: int
    slot: int
    content: int


class Load(NamedTuple):
    """Copy a slot to a block, if it still holds `content`. slot -1: nothing to load from, report the block.

    requested   a request waits for it; else it is a prefetch
    """

    slot: int
    block: int
    content: int
    requested: bool


@dataclass
class Copies:
    """Copies of one step: all stores, before anything of the step is written; then the loads."""

    stores: list[Store] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)


@dataclass
class LoadReport:
    """What became of a step's loads. `bad`: (slot, block) of loads whose slot held something else by then."""

    loads: int = 0
    bad: list[tuple[int, int]] = field(default_factory=list)
