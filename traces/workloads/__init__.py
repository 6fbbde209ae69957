"""Embedded workloads: real agent traces as numbers, ready to replay without any download.

Each `data/NAME.workload` has a `data/NAME.provenance.json` beside it: source, licence, record counts, digest,
the command that makes it from a copy of the public set, and what was not imported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traces import store
from traces.errors import InputError, nearest
from traces.schema import Workload

DATA = Path(__file__).parent / "data"
PROVENANCE_SUFFIX = ".provenance.json"


def names() -> tuple[str, ...]:
    """Return the names of the embedded workloads, sorted."""
    return tuple(sorted(p.name.removesuffix(store.SUFFIX) for p in DATA.glob(f"*{store.SUFFIX}")))


def open(name: str) -> Workload:
    """Return an embedded workload; InputError with the nearest name when there is none of that name."""
    return store.open(_file(name, store.SUFFIX))


def provenance(name: str) -> dict[str, Any]:
    """Return what `NAME.provenance.json` says; InputError with the nearest name when there is none."""
    value: dict[str, Any] = json.loads(_file(name, PROVENANCE_SUFFIX).read_text(encoding="utf-8"))
    return value


def _file(name: str, suffix: str) -> Path:
    if name not in names():
        raise InputError(nearest(name, names(), what="embedded workload"))
    return DATA / f"{name}{suffix}"
