"""Recorded orders of agents, tools and phases, as numbers: what predictors are judged on. No text of any record.

Each file under `data/` holds one source: the names of the symbols (roles, tool names, phases), and for every recorded
run the task it worked on, as a hash, and its symbols in order. Runs of one task have one name but for `#n`, so that a
split by name never puts a task on both sides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from traces.errors import InputError, nearest


@dataclass(frozen=True)
class Recorded:
    """Runs of one source.

    names     of the runs: the task's hash, and `#n` from its second run on
    symbols   who acts, or with what
    runs      indices into `symbols`, in order
    """

    source: str
    names: tuple[str, ...]
    symbols: tuple[str, ...]
    runs: tuple[tuple[int, ...], ...]
    provenance: dict[str, Any] = field(default_factory=dict)


def names() -> tuple[str, ...]:
    """Return the sources there are."""
    found = (f.name for f in (files("traces.sequences") / "data").iterdir())
    return tuple(sorted(n.removesuffix(".json") for n in found if n.endswith(".json")))


def load(name: str) -> Recorded:
    """Return a source's runs; InputError with the nearest name."""
    if name not in names():
        raise InputError(nearest(name, names(), what="recorded sequences"))
    body = json.loads((files("traces.sequences") / "data" / f"{name}.json").read_text(encoding="utf-8"))
    return Recorded(
        name,
        tuple(body["names"]),
        tuple(body["symbols"]),
        tuple(tuple(run) for run in body["runs"]),
        body["provenance"],
    )


def encode(recorded: Iterable[tuple[str, Sequence[str]]], provenance: dict[str, Any]) -> str:
    """Return the file of (task, symbols in order) pairs: tasks become hashes; runs without a symbol are left out."""
    runs = [(hashlib.blake2b(task.encode(), digest_size=6).hexdigest(), run) for task, run in recorded if run]
    runs.sort(key=lambda r: (r[0], tuple(r[1])))
    symbols = sorted({s for _, run in runs for s in run})
    place = {s: i for i, s in enumerate(symbols)}
    seen: dict[str, int] = {}
    labels = []
    for task, _ in runs:
        seen[task] = seen.get(task, 0) + 1
        labels.append(task if seen[task] == 1 else f"{task}#{seen[task]}")
    head = json.dumps(
        {"provenance": provenance, "symbols": symbols, "names": labels}, indent=1, sort_keys=True
    )
    rows = ",\n  ".join(json.dumps([place[s] for s in run]) for _, run in runs)
    return head[: head.rindex("\n}")] + f',\n "runs": [\n  {rows}\n ]\n}}\n'
