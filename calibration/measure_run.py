"""Piece G: a closed loop of requests over a backend's steps, kept out of every fit; and what a profile says of it.

The loop is a small continuous-batching engine: decodes first, then one chunk of the oldest unfinished prompt. Its clock
is the sum of measured step times, so that nothing but steps is judged. Decode width is padded to the next multiple of
eight and the mean context to the next 256 tokens: a backend that replays captured graphs then needs few of them,
and the step that is priced is the step that ran.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from calibration.measure_store import MeasurementStore
from calibration.plan import Point, RunPoint
from calibration.stats import absolute_error
from policies.costs import Profile
from traces import draws
from traces.errors import InputError

_PAD_SEQS, _PAD_CONTEXT = 8, 256
_PPM = 1_000_000


@dataclass
class Request:
    """One request of the loop. Mutated by it."""

    index: int
    arrival_ns: int
    prompt: int
    output: int
    prefilled: int = 0
    made: int = 0
    first_ns: int = 0


@dataclass(frozen=True)
class RunResult:
    """Finished requests (one dict each: arrival_s, prompt_tokens, output_tokens, ttft_ms, e2e_ms) and all steps.

    output_tokens   tokens made, those of unfinished requests too
    scope           kernel: the clock is the sum of steps. engine: it is the wall clock of an engine
    """

    requests: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    duration_ns: int
    output_tokens: int
    scope: str = "kernel"

    def figures(self) -> dict[str, float]:
        """Return mean ttft_ms, tpot_ms, e2e_ms of finished requests, and throughput_tok_s of all output."""
        if not self.requests:
            raise InputError("the run is too short: no request finished; give it more seconds (--run-s)")
        table = pd.DataFrame(self.requests)
        tpot = (table.e2e_ms - table.ttft_ms) / (table.output_tokens - 1)
        return {
            "ttft_ms": float(table.ttft_ms.mean()),
            "tpot_ms": float(tpot.mean()),
            "e2e_ms": float(table.e2e_ms.mean()),
            "throughput_tok_s": self.output_tokens / self.duration_ns * 1e9,
        }


class Limit(Protocol):
    """What may end a run early: `measure.Budget`."""

    def allows(self, cost_s: float = 0.0) -> bool:
        """Say whether to go on."""
        ...


def kernel_ps(profile: Profile, point: Point) -> int:
    """Return what the profile says the kernels of a step take, in ps; no engine time."""
    chunk = point.new_tokens if point.kind in ("prefill", "mixed") else 0
    pairs = chunk * (2 * point.prefix_tokens + chunk) // 2
    bare = replace(profile, overhead_ps=0, overhead_per_seq_ps=0)
    if point.kind == "prefill":
        return bare.step_ps(point.batch * chunk, point.batch, 0, point.batch * pairs)
    queries = point.new_tokens if point.kind == "verify" else 1
    context = sum(profile.verify_read_tokens(queries, c) for c in point.contexts())
    return bare.step_ps(point.batch * queries + chunk, point.batch + (chunk > 0), context, pairs)


def closed_loop(run: RunPoint, step_ns: Callable[[Point], int], budget: Limit | None = None) -> RunResult:
    """Run the loop until its own clock passes the run's duration or the budget ends; return what happened.

    Lengths are drawn from 75 % to 125 % of the run's, keyed by its name and the request's number, so that every
    caller replays the same requests.
    """
    numbers = count()
    now = 0
    live = [arrive(run, next(numbers), 0) for _ in range(run.concurrency)]
    requests: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    while now < run.duration_s * 1e9 and (budget is None or budget.allows()):
        decoding = [r for r in live if r.made]
        filling = next((r for r in live if not r.made), None)
        chunk = min(run.chunk_tokens - len(decoding), filling.prompt - filling.prefilled) if filling else 0
        point = _point(decoding, filling, chunk)
        took = step_ns(point)
        now += took
        steps.append(
            {
                "kind": point.kind, "batch": point.batch, "new_tokens": point.new_tokens,
                "context_tokens": point.context_tokens, "prefix_tokens": point.prefix_tokens, "time_ns": took,
                "scope": "kernel", "source": f"run {run.name}", "spread_ns": 0, "decoding": len(decoding),
            }
        )  # fmt: skip
        for request in decoding:
            request.made += 1
        if filling is not None:
            filling.prefilled += chunk
            if filling.prefilled == filling.prompt:
                filling.made, filling.first_ns = 1, now
        for i, request in enumerate(live):
            if request.made == request.output:
                requests.append(finished(request, now))
                live[i] = arrive(run, next(numbers), now)
        # Oldest prompt first, whichever slot it came to.
        live.sort(key=lambda r: r.index)
    return RunResult(
        requests, steps, now, sum(r["output_tokens"] for r in requests) + sum(r.made for r in live)
    )


def write_run(result: RunResult, run: RunPoint, store: MeasurementStore) -> None:
    """Write run-NAME.requests.csv, run-NAME.steps.parquet and run-NAME.json; the first one last, as the mark."""
    store.write_json(
        f"run-{run.name}.json", {"run": asdict(run), "scope": result.scope, "measured": result.figures()}
    )
    if result.steps:
        pd.DataFrame(result.steps).to_parquet(store.folder / f"run-{run.name}.steps.parquet", index=False)
    path = store.folder / f"run-{run.name}.requests.csv"
    aside = path.with_suffix(".tmp")
    pd.DataFrame(result.requests).to_csv(aside, index=False)
    aside.replace(path)


def predict_runs(profile: Profile, folder: Path) -> dict[str, Any]:
    """Return, for each run in the folder, measured and predicted figures, percent errors, and errors of its steps.

    The profile prices the same loop over the same requests: kernels alone, or with the engine's time where the run was
    an engine's, whose steps were not seen. Raises InputError where there is no run.
    """
    found = sorted(folder.glob("run-*.json"))
    if not found:
        raise InputError(f"{folder}: holds no run of piece G (run-NAME.json)")
    out: dict[str, Any] = {}
    for path in found:
        body = json.loads(path.read_text(encoding="utf-8"))
        run, measured = RunPoint(**body["run"]), body["measured"]
        engine = body["scope"] == "engine"
        predicted = closed_loop(run, partial(_price_ns, profile, engine)).figures()
        out[run.name] = {
            "measured": measured,
            "predicted": predicted,
            "error_percent": {k: round(100 * (predicted[k] / measured[k] - 1), 2) for k in measured},
        }
        steps = path.with_suffix(".steps.parquet")
        if steps.is_file():
            rows = pd.read_parquet(steps).to_dict("records")
            error = np.array([_price_error(profile, {str(k): v for k, v in row.items()}) for row in rows])
            out[run.name]["steps"] = absolute_error(error)
    return out


def _price_ns(profile: Profile, engine: bool, point: Point) -> int:
    seqs = point.batch + (point.kind == "mixed")
    overhead = profile.overhead_ps + profile.overhead_per_seq_ps * seqs if engine else 0
    return max((kernel_ps(profile, point) + overhead) // 1000, 1)


def _price_error(profile: Profile, row: dict[str, Any]) -> float:
    point = Point(
        "G", str(row["kind"]), int(row["batch"]), int(row["new_tokens"]), int(row["context_tokens"]),
        int(row["prefix_tokens"]),
    )  # fmt: skip
    return kernel_ps(profile, point) / 1000 / float(row["time_ns"]) - 1


def arrive(run: RunPoint, index: int, now_ns: int) -> Request:
    """Return the run's request `index`: the same lengths for every caller."""

    def length(of: str, mean: int) -> int:
        # Whole millionths: the length is the same on every machine.
        share = 750_000 + draws.bits(0, f"run {run.name} {of}", index) % 500_001
        return max(mean * share // _PPM, 2)

    return Request(index, now_ns, length("prompt", run.prompt_tokens), length("output", run.output_tokens))


def _point(decoding: list[Request], filling: Request | None, chunk: int) -> Point:
    if not decoding:
        assert filling is not None
        return Point("G", "prefill", 1, chunk, prefix_tokens=filling.prefilled)
    batch = -(-len(decoding) // _PAD_SEQS) * _PAD_SEQS
    mean = sum(r.prompt + r.made for r in decoding) // len(decoding)
    context = -(-mean // _PAD_CONTEXT) * _PAD_CONTEXT
    if filling is None:
        return Point("G", "decode", batch, 1, context)
    return Point("G", "mixed", batch, chunk, context, filling.prefilled)


def finished(request: Request, now_ns: int) -> dict[str, Any]:
    """Return the row of a request that ended now."""
    return {
        "request": request.index,
        "arrival_s": request.arrival_ns / 1e9,
        "prompt_tokens": request.prompt,
        "output_tokens": request.output,
        "ttft_ms": (request.first_ns - request.arrival_ns) / 1e6,
        "e2e_ms": (now_ns - request.arrival_ns) / 1e6,
    }
