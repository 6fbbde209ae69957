"""What a profile says a benchmark will measure: the simulator under a client's load, in a client's figures.

Latencies are a client's: the time to the first token holds the profile's HTTP constant, and so does the end
to end. Throughputs count from the first request sent to the last one answered, as `vllm bench serve` does.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from calibration.memory import kv_blocks
from calibration.predict_client import ClosedLoop
from calibration.predict_latency import request_latencies
from calibration.predict_serving import Serving, served
from policies.costs import Profile
from policies.registry import PolicySet, load
from sim.config import EngineConfig, LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import simulate
from traces.errors import InputError
from traces.metrics import FINISHED, REJECTED, itl_ms
from traces.quantiles import Sample
from traces.runlog import from_tables
from traces.schema import Workload

PERCENTS = (50, 90, 99)
_WIDEST_GRAPH = 512


@dataclass(frozen=True)
class Figures:
    """One latency, ms: mean and percentiles over requests (ITL: over gaps); None where nothing was seen."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None


@dataclass(frozen=True)
class Prediction:
    """What a run would measure. Latencies in ms; `throughput_tok_s` counts generated tokens.

    itl_ms is None where it was not asked for. `notes` say what was assumed.
    """

    profile: str
    requests: int
    completed: int
    rejected: int
    duration_s: float
    ttft_ms: Figures
    tpot_ms: Figures
    itl_ms: Figures | None
    e2e_ms: Figures
    throughput_tok_s: float
    requests_per_s: float
    kv_blocks: int
    engine: dict[str, Any]
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as plain values for JSON, floats rounded to 6 significant digits."""
        body: dict[str, Any] = _rounded(asdict(self))
        return body


class _Latencies(MemorySink):
    """Keeps the requests; the steps only where gaps between tokens are asked for."""

    def __init__(self, tables: frozenset[str]) -> None:
        super().__init__()
        self._kept = tables

    def write(self, table: str, rows: pa.Table) -> None:
        if table in self._kept:
            super().write(table, rows)


def predict_closed_loop(
    profile: Profile,
    client: ClosedLoop,
    engine: EngineConfig,
    *,
    seed: int = 0,
    itl: bool = False,
    how: Serving | None = None,
) -> Prediction:
    """Predict a benchmark that keeps `client.concurrency` equal requests in flight."""
    config = LoadConfig(loop="closed", concurrency=client.concurrency)
    return predict(profile, client.workload(seed), engine, config, seed=seed, itl=itl, how=how)


def tables_of(
    profile: Profile,
    workload: Workload,
    engine: EngineConfig,
    load_config: LoadConfig,
    *,
    seed: int = 0,
    itl: bool = False,
) -> tuple[dict[str, pa.Table], int, tuple[str, ...]]:
    """Simulate; return (tables of the run log, KV blocks, notes). Without `itl` only `requests` has rows."""
    capacity = kv_blocks(profile, engine)
    kept = frozenset({"requests", "steps", "decisions"}) if itl else frozenset({"requests"})
    sink = _Latencies(kept)
    stats = simulate(
        workload,
        _launches_hidden(profile),
        PolicySet(bucketer=load("bucketers", "vllm_ladder")),  # type: ignore[arg-type]
        SimConfig(engine=engine, load=load_config, seed=seed),
        sink,
        kv_blocks=capacity.blocks,
    )
    return sink.tables(), capacity.blocks, (f"KV blocks {capacity.source_text}", *stats.notes)


def predict(
    profile: Profile,
    workload: Workload,
    engine: EngineConfig,
    load_config: LoadConfig,
    *,
    seed: int = 0,
    itl: bool = True,
    how: Serving | None = None,
) -> Prediction:
    """Simulate the workload on the profile, served as `how` says, and return the client's figures.

    Raises InputError where the KV pool is empty, the load does not fit the workload, or no request at all
    could be served (with the engine's reason).
    """
    chosen = how or Serving()
    priced, assumed = served(profile, chosen)
    tables, blocks, notes = tables_of(priced, workload, engine, load_config, seed=seed, itl=itl)
    log = from_tables(tables, kv_blocks=blocks)
    released, finished, status, tokens = log.columns(
        "requests", "released_ns", "finished_ns", "status", "output_tokens"
    )
    done = status == FINISHED
    if not done.any():
        reasons = sorted(set(tables["requests"]["reason"].to_pylist()))
        raise InputError(f"{profile.name}: no request could be served: {', '.join(reasons)}")
    latency = request_latencies(log, priced, chosen)
    duration_s = float(finished[done].max() - released.min()) / 1e9
    return Prediction(
        profile=profile.name,
        requests=len(status),
        completed=int(done.sum()),
        rejected=int((status == REJECTED).sum()),
        duration_s=duration_s,
        ttft_ms=_figures(Sample(latency.ttft_ms[~np.isnan(latency.ttft_ms)])),
        tpot_ms=_figures(Sample(latency.tpot_ms[~np.isnan(latency.tpot_ms)])),
        itl_ms=_figures(itl_ms(log)) if itl else None,
        e2e_ms=_figures(Sample(latency.e2e_ms[done])),
        throughput_tok_s=float(tokens[done].sum()) / duration_s,
        requests_per_s=float(done.sum()) / duration_s,
        kv_blocks=blocks,
        engine=asdict(engine),
        notes=(*notes, *assumed),
    )


def _launches_hidden(profile: Profile) -> Profile:
    """Drop the cost of eager launches where every step without a graph outlasts its own launches.

    vLLM captures to 512 tokens. A wider step is launched kernel by kernel, but its launches run ahead of the
    kernels, and cost nothing while the kernels are the longer of the two.
    """
    if profile.linear_ps_at(_WIDEST_GRAPH + 1) >= profile.eager_launch_ps:
        return replace(profile, eager_launch_ps=0)
    return profile


def _figures(sample: Sample) -> Figures:
    p50, p90, p99 = sample.percentiles(*PERCENTS)
    return Figures(*(None if math.isnan(x) else float(x) for x in (sample.mean(), p50, p90, p99)))


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
