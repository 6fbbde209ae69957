"""The folder of a measurement: one small Parquet file a reading, written aside and renamed, so that a killed run keeps
every reading it finished and the next run goes on from there.

    parts/000017.parquet   one reading: the point, its quantities, every repetition
    machine.json           the machine, its clocks and versions, as they were found
    rows.parquet           median step times, what `python -m calibration fit` reads
    other.json             host link, graphs, asynchronous steps: medians by point
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibration.plan import Point
from calibration.rows import StepRows, from_frame, write_rows
from traces.errors import InputError

STEP_KINDS = ("decode", "prefill", "mixed", "verify", "idle")
_SCOPE = {"step": "kernel", "engine": "engine", "client": "client"}


@dataclass(frozen=True)
class Reading:
    """One measured point.

    sequence   its place in the order of measuring, from 0
    attempt    1, or 2 where drift made it be measured again
    values     quantity -> repetitions, whole numbers: "step", "engine", "client", "copy", "capture", "replay" in ns,
               "memory" in bytes
    drift_ppm  anchors: change against the anchor before; else 0
    clocks     clock and temperature when it was measured; {} where they cannot be read
    """

    point: Point
    sequence: int
    attempt: int
    values: dict[str, list[int]]
    drift_ppm: int
    clocks: dict[str, int]


class MeasurementStore:
    """Readings in a folder, in the order they were taken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = folder / "parts"
        try:
            self.parts.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise InputError(f"--out {folder}: {e.strerror}") from None

    def add(self, reading: Reading) -> None:
        """Write a reading; when this returns it survives whatever happens to the process."""
        columns: dict[str, list[Any]] = {k: [v] for k, v in asdict(reading.point).items()}
        columns |= {"sequence": [reading.sequence], "attempt": [reading.attempt]}
        columns |= {"drift_ppm": [reading.drift_ppm], "clocks": [json.dumps(reading.clocks, sort_keys=True)]}
        columns |= {"values": [json.dumps(reading.values, sort_keys=True)]}
        path = self.parts / f"{reading.sequence:06d}.parquet"
        aside = path.with_suffix(f".tmp{os.getpid()}")
        pd.DataFrame(columns).to_parquet(aside, index=False)
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.replace(path)

    def readings(self) -> list[Reading]:
        """Return what is there, by sequence; raises InputError naming a file that is not a reading."""
        return [_read(path) for path in sorted(self.parts.glob("[0-9]*.parquet"))]

    def write_json(self, name: str, body: Any) -> Path:
        """Write a JSON file, whole or not at all."""
        path = self.folder / name
        aside = path.with_suffix(".tmp")
        aside.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        aside.replace(path)
        return path


def latest(readings: list[Reading]) -> dict[str, Reading]:
    """Return the last reading of every point, by the point's key; anchors are none of them."""
    return {r.point.key: r for r in readings if r.point.piece != "anchor"}


def step_rows(readings: list[Reading], source: str) -> StepRows | None:
    """Return the median step of every point that is a step as `rows` means it; None without any.

    Left out: copies and graphs, and steps of asynchronous scheduling, whose wall time hides a part of the engine's:
    how much it hides is what `other.json` says, beside the sync step of the same batch. The HTTP round trip is
    measured without an engine; an idle row has one, so the engine's fixed time is added to it where both are known.
    """
    rows = []
    fixed_ns = _engine_fixed_ns(readings)
    for reading in latest(readings).values():
        p = reading.point
        if not _fitted(p) or (p.kind == "idle" and fixed_ns is None):
            continue
        for quantity, times in sorted(reading.values.items()):
            median, spread = summary(times)
            median += (fixed_ns or 0) if p.kind == "idle" else 0
            rows.append(
                {
                    "kind": p.kind, "batch": p.batch, "new_tokens": p.new_tokens,
                    "context_tokens": p.context_tokens, "prefix_tokens": p.prefix_tokens, "time_ns": max(median, 1),
                    "scope": _SCOPE[quantity], "source": f"{source} {p.key}", "spread_ns": spread,
                }
            )  # fmt: skip
    return from_frame(pd.DataFrame(rows), "measured rows") if rows else None


def write_results(store: MeasurementStore, source: str) -> dict[str, int]:
    """Write `rows.parquet` and `other.json` from the readings; return counts by piece."""
    readings = store.readings()
    rows = step_rows(readings, source)
    if rows is not None:
        aside = store.folder / "rows.tmp.parquet"
        write_rows(rows, aside)
        aside.replace(store.folder / "rows.parquet")
    other = {}
    counts: dict[str, int] = {}
    for key, reading in sorted(latest(readings).items()):
        counts[reading.point.piece] = counts.get(reading.point.piece, 0) + 1
        if not _fitted(reading.point) or reading.point.kind == "idle":
            medians = {
                q: dict(zip(("median", "mad"), summary(v), strict=True)) for q, v in reading.values.items()
            }
            other[key] = asdict(reading.point) | {"values": medians}
    if other:
        store.write_json("other.json", other)
    return counts


def summary(values: list[int]) -> tuple[int, int]:
    """Return median and median absolute deviation, whole numbers.

    >>> summary([10, 30, 12, 11, 14])
    (12, 2)
    """
    array = np.asarray(values, dtype=np.float64)
    median = float(np.median(array))
    return round(median), round(float(np.median(np.abs(array - median))))


def _engine_fixed_ns(readings: list[Reading]) -> int | None:
    """Return what a sync step of one sequence takes beyond its kernels, ns; None where one of the two is missing."""
    by_shape: dict[str, int] = {}
    for r in latest(readings).values():
        p = r.point
        if (p.kind, p.batch, p.context_tokens) == ("decode", 1, 256) and p.mode in ("", "sync"):
            for quantity, times in r.values.items():
                by_shape[quantity] = summary(times)[0]
    if set(by_shape) != {"step", "engine"}:
        return None
    return max(by_shape["engine"] - by_shape["step"], 0)


def _fitted(point: Point) -> bool:
    return point.kind in STEP_KINDS and point.mode != "async"


def _read(path: Path) -> Reading:
    try:
        row = pd.read_parquet(path).iloc[0].to_dict()
        point = Point(**{f.name: _plain(row[f.name]) for f in fields(Point)})
        return Reading(
            point, int(row["sequence"]), int(row["attempt"]), json.loads(row["values"]), int(row["drift_ppm"]),
            json.loads(row["clocks"]),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, IndexError) as e:
        raise InputError(
            f"{path}: not a reading: {str(e).splitlines()[0]}; delete it to measure it again"
        ) from None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
