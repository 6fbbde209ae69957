"""What the summary keeps of one run: metrics and samples by window, warnings, and which workflows finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.store import Store
from traces.definitions import Slo
from traces.metrics import finished_workflows, itl_ms, run_metrics, ttft_ms, warnings, workflow_latency_s
from traces.quantiles import Sample
from traces.runlog import RunLog, read_run
from traces.windows import WINDOWS, window_of

Metrics = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Run:
    """One complete run.

    metrics   window -> metric -> value; samples: window -> name of the sample -> its values
    finished  int64[finished workflows]: their ids, ascending
    """

    metrics: Metrics
    samples: dict[str, dict[str, Sample]]
    warnings: list[str]
    manifest: dict[str, Any]
    finished: NDArray[np.int64]


def read(store: Store, run_id: str, slo: Slo) -> Run:
    """Return a complete run of the store; InputError where its files are broken."""
    manifest = store.manifest(run_id)
    log = _log(store, run_id, manifest)
    samples = {}
    for name in WINDOWS:
        span = window_of(log, name)
        samples[name] = {
            "ttft": Sample(ttft_ms(log, span)),
            "itl": itl_ms(log, span),
            "workflow": Sample(workflow_latency_s(log, span)),
        }
    said = [*warnings(log), *_never_begun(log, manifest)]
    return Run(_metrics(log, slo), samples, said, manifest, finished_workflows(log))


def read_metrics(store: Store, run_id: str, slo: Slo) -> Metrics:
    """Return a run's metrics alone, window -> metric -> value."""
    return _metrics(_log(store, run_id, store.manifest(run_id)), slo)


def differently_finished(one: Run, other: Run) -> int:
    """Return how many workflows only one of two runs finished."""
    return len(np.setxor1d(one.finished, other.finished, assume_unique=True))


def _log(store: Store, run_id: str, manifest: Mapping[str, Any]) -> RunLog:
    """Open the log; the manifest knows the size of the KV pool, of which occupancy is a share."""
    return read_run(store.run_dir(run_id), kv_blocks=(manifest.get("kv") or {}).get("blocks") or None)


def _metrics(log: RunLog, slo: Slo) -> Metrics:
    return {name: run_metrics(log, window_of(log, name), slo) for name in WINDOWS}


def _never_begun(log: RunLog, manifest: Mapping[str, Any]) -> list[str]:
    """Say how many workflows a horizon kept from beginning: the log has no row for them."""
    wanted = (manifest.get("stats") or {}).get("workflows")
    left = int(wanted) - log.rows("workflows") if wanted is not None else 0
    return [f"{left} of {wanted} workflows had not begun when the run ended"] if left > 0 else []
