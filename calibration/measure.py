"""Measure a plan on a backend: random order, anchors, drift, a budget, and nothing measured twice.

Every `ANCHOR_EVERY` points the anchor is measured. Where it moved by more than 2 % since the last anchor, the points
between the two are measured once more, after the others. Clocks are read and written down, never set.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from calibration import plan as plans
from calibration.measure_machine import clocks
from calibration.measure_run import RunResult, write_run
from calibration.measure_store import MeasurementStore, Reading, latest, summary, write_results
from calibration.plan import Point, RunPoint

DRIFT_PPM_MAX = 20_000
_MAX_ATTEMPTS = 2


class Unmeasurable(Exception):
    """A point that turned out not to be measurable here (out of memory); the others go on."""


class Backend(Protocol):
    """What measures. `name` goes into the source of every row."""

    name: str

    def machine(self) -> dict[str, Any]:
        """Return what a reader must know: model, device, versions, how steps are made."""
        ...

    def refuses(self, point: Point) -> str | None:
        """Return why a point cannot be measured here, None where it can."""
        ...

    def measure(self, point: Point, repetitions: int) -> dict[str, list[int]]:
        """Return quantity -> one whole number a repetition (see `measure_store.Reading`).

        Raises Unmeasurable for a point that fails and leaves the device usable.
        """
        ...

    def run(self, run: RunPoint, budget: Budget) -> RunResult:
        """Run a closed loop of piece G until its duration, or the budget, ends."""
        ...


@dataclass
class Budget:
    """Seconds that may be spent, on a clock; `reserve_s` of them are kept for what comes last."""

    seconds: float
    reserve_s: float = 0.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def spent_s(self) -> float:
        """Seconds since the budget was made."""
        return self.clock() - self._began

    def allows(self, cost_s: float = 0.0) -> bool:
        """Say whether something of `cost_s` may begin."""
        return self.spent_s + cost_s <= self.seconds - self.reserve_s


@dataclass(frozen=True)
class Outcome:
    """What a call came to: points measured now, there before, refused (key -> reason), left for want of time."""

    measured: int
    there: int
    refused: dict[str, str]
    left: int


def measure(
    backend: Backend,
    folder: Path,
    *,
    plan: str = "full",
    pieces: Sequence[str] = plans.PIECES,
    repetitions: int = 15,
    budget: Budget | None = None,
    seed: int = 0,
    run_s: float | None = None,
    say: Callable[[str], None] | None = None,
) -> Outcome:
    """Measure what the folder lacks of the plan, then the runs of piece G; return what was done.

    Results are written (rows.parquet, other.json) also when the budget ends the measuring or it is interrupted.
    """
    say = say or _to_stderr
    store = MeasurementStore(folder)
    store.write_json("machine.json", {**backend.machine(), "clocks_at_start": clocks(), "plan": plan})
    wanted = plans.ordered(plans.points(plan, pieces), seed)
    refused = {p.key: why for p in wanted if (why := backend.refuses(p)) is not None}
    wanted = [p for p in wanted if p.key not in refused]
    runs = plans.runs(plan, run_s) if "G" in pieces else []
    budget = budget or Budget(float("inf"))
    budget.reserve_s = sum(r.duration_s for r in runs) if runs and wanted else 0.0
    session = _Session(backend, store, budget, repetitions, say)
    try:
        measured, there, left = session.points(wanted)
        budget.reserve_s = 0.0
        left += _runs(backend, store, runs, budget, say)
    finally:
        write_results(store, backend.name)
    refused |= session.failed
    for key, why in sorted(refused.items()):
        say(f"not measured: {key}: {why}")
    return Outcome(measured, there, refused, left)


class _Session:
    """One pass over the points. Mutates the store."""

    def __init__(
        self,
        backend: Backend,
        store: MeasurementStore,
        budget: Budget,
        repetitions: int,
        say: Callable[[str], None],
    ) -> None:
        self.backend, self.store, self.budget = backend, store, budget
        self.repetitions, self.say = repetitions, say
        self.readings = store.readings()
        self.sequence = max((r.sequence for r in self.readings), default=-1) + 1
        self.anchor_ns = 0
        self.failed: dict[str, str] = {}
        self.clocks: dict[str, int] = {}

    def points(self, wanted: list[Point]) -> tuple[int, int, int]:
        """Measure what is missing; return points measured, there before, and left."""
        before = latest(self.readings)
        again = self._drifted(wanted)
        queue = [p for p in wanted if p.key not in before] + again
        there = len(wanted) - len(queue)
        attempts = {p.key: before[p.key].attempt for p in again}
        total, done, cost_s = len(queue), 0, 0.0
        since: list[Point] = []
        anchored = self.backend.refuses(plans.anchor()) is None
        if queue and anchored:
            self._anchor(first=True)
        while queue:
            if not self.budget.allows(cost_s):
                self.say(f"budget of {self.budget.seconds:g} s reached: {len(queue)} of {total} points left")
                return done, there, len(queue)
            point = queue.pop(0)
            began = self.budget.spent_s
            attempts[point.key] = attempts.get(point.key, 0) + 1
            try:
                self._write(point, attempts[point.key], self.backend.measure(point, self.repetitions), 0)
            except Unmeasurable as e:
                self.failed[point.key] = str(e)
                continue
            since.append(point)
            done += 1
            # The dearest point so far: what is next may cost as much.
            cost_s = max(cost_s, self.budget.spent_s - began)
            rest_s = self.budget.spent_s / done * len(queue)
            self.say(f"{done}/{done + len(queue)} {point.key}, about {rest_s:.0f} s left")
            if anchored and (len(since) == plans.ANCHOR_EVERY or not queue):
                if abs(self._anchor()) > DRIFT_PPM_MAX:
                    queue += [p for p in since if attempts[p.key] < _MAX_ATTEMPTS]
                since = []
        return done, there, 0

    def _drifted(self, wanted: list[Point]) -> list[Point]:
        """Return points between two anchors that differ, measured once and not again: a killed run left them."""
        keys = {p.key: p for p in wanted}
        newest = latest(self.readings)
        out, since = [], []
        for reading in self.readings:
            if reading.point.piece != "anchor":
                since.append(reading)
                continue
            if abs(reading.drift_ppm) > DRIFT_PPM_MAX:
                out += [r for r in since if r.attempt < _MAX_ATTEMPTS and newest[r.point.key] is r]
            since = []
        return [keys[r.point.key] for r in out if r.point.key in keys]

    def _anchor(self, first: bool = False) -> int:
        """Measure the anchor; return its change against the last one in parts per million."""
        point = plans.anchor()
        values = self.backend.measure(point, self.repetitions)
        (times,) = values.values()
        now_ns, _ = summary(times)
        drift = 0 if first or not self.anchor_ns else round((now_ns / self.anchor_ns - 1) * 1e6)
        self.anchor_ns = now_ns
        self._write(point, 1, values, drift)
        if abs(drift) > DRIFT_PPM_MAX:
            self.say(
                f"the anchor moved by {drift / 1e4:+.1f} %: what was measured since the last one is repeated"
            )
        return drift

    def _write(self, point: Point, attempt: int, values: dict[str, list[int]], drift_ppm: int) -> None:
        # Asking the driver takes a tenth of a second: once an anchor is enough to see a clock move.
        if point.piece == "anchor":
            self.clocks = clocks()
        reading = Reading(point, self.sequence, attempt, values, drift_ppm, self.clocks)
        self.store.add(reading)
        self.readings.append(reading)
        self.sequence += 1


def _runs(
    backend: Backend,
    store: MeasurementStore,
    runs: list[RunPoint],
    budget: Budget,
    say: Callable[[str], None],
) -> int:
    left = 0
    for run in runs:
        if (store.folder / f"run-{run.name}.requests.csv").exists():
            continue
        if not budget.allows(run.duration_s):
            say(f"budget of {budget.seconds:g} s reached: run {run.name} left")
            left += 1
            continue
        result = backend.run(run, budget)
        if not result.requests:
            say(
                f"run {run.name}: no request finished in {result.duration_ns / 1e9:.1f} s; give it more (--run-s)"
            )
            left += 1
            continue
        write_run(result, run, store)
        say(f"run {run.name}: {run.duration_s:g} s measured, kept out of the fit")
    return left


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
