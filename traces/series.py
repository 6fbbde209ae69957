"""Metrics over time: a run cut into equal bins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError, nearest
from traces.runlog import RunLog
from traces.windows import full_window

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One metric in equal time bins.

    edges_s   float64[bins + 1], seconds since the start of the run
    value     float64[bins]; nan where the bin holds nothing to measure
    unit      of `value`
    """

    edges_s: Float
    value: Float
    unit: str


def series(log: RunLog, metric: str, bins: int = 200) -> Series:
    """Return `metric` (a name of `SERIES`) over the full run in `bins` bins; InputError for another name.

    Rates are ratios of sums within the bin. Levels are time averages over the bin, summed over replicas.
    """
    if metric not in SERIES:
        raise InputError(nearest(metric, SERIES, what="series"))
    if bins < 1:
        raise InputError(f"series: bins={bins}: expected at least 1")
    window = full_window(log)
    edges = np.linspace(window.start_ns, max(window.end_ns, window.start_ns + 1), bins + 1)
    unit, compute = SERIES[metric]
    return Series(edges / 1e9, compute(log, edges), unit)


def _binned(time_ns: NDArray[Any], weight: NDArray[Any], edges: Float) -> Float:
    """Return the sum of `weight` by the bin of `time_ns`; the last bin is closed."""
    return np.asarray(np.histogram(time_ns, bins=edges, weights=weight.astype(np.float64))[0])


def _divide(part: Float, whole: Float) -> Float:
    out = np.full(len(part), np.nan)
    np.divide(part, whole, out=out, where=whole > 0)
    return out


def _hits(*columns: str) -> Callable[[RunLog, Float], Float]:
    def compute(log: RunLog, edges: Float) -> Float:
        admitted, prompt = log.columns("requests", "admitted_ns", "prompt_tokens")
        at = admitted >= 0
        hit = sum(
            (log.column("requests", c).astype(np.int64) for c in columns), np.zeros(len(prompt), np.int64)
        )
        return _divide(_binned(admitted[at], hit[at], edges), _binned(admitted[at], prompt[at], edges))

    return compute


def _integral(log: RunLog, level: NDArray[Any], edges: Float, *, hold: bool = False) -> Float:
    """Return the integral over each bin (ns x level) of a level that steps state, summed over replicas.

    Between steps the level is 0, or the last one with `hold`.
    """
    replica, start, duration = log.columns("steps", "replica", "start_ns", "duration_ns")
    out = np.zeros(len(edges) - 1)
    for r in range(log.replicas):
        at = np.flatnonzero(replica == r)
        if not len(at):
            continue
        at = at[np.argsort(start[at], kind="stable")]
        begin = start[at].astype(np.float64)
        end = np.append(begin[1:], max(edges[-1], begin[-1])) if hold else begin + duration[at]
        # The integral up to t is linear within steps and between them: knots at starts and ends are exact.
        upto = np.cumsum((end - begin) * level[at])
        knots = np.empty(2 * len(at))
        knots[0::2], knots[1::2] = begin, end
        value = np.empty(2 * len(at))
        value[0], value[2::2], value[1::2] = 0.0, upto[:-1], upto
        out += np.diff(np.interp(edges, knots, value))
    return out


def _sequences(log: RunLog) -> NDArray[np.int64]:
    decode, prefill = log.columns("steps", "decode_seqs", "prefill_seqs")
    return np.asarray(decode.astype(np.int64) + prefill)


def _running(log: RunLog, edges: Float) -> Float:
    return _integral(log, _sequences(log), edges) / np.diff(edges)


def _batch(log: RunLog, edges: Float) -> Float:
    ones = np.ones(log.rows("steps"))
    return _divide(_integral(log, _sequences(log), edges), _integral(log, ones, edges))


def _utilisation(log: RunLog, edges: Float) -> Float:
    return _integral(log, np.ones(log.rows("steps")), edges) / np.diff(edges) / log.replicas


def _level(column: str, *, hold: bool = False) -> Callable[[RunLog, Float], Float]:
    def compute(log: RunLog, edges: Float) -> Float:
        return _integral(log, log.column("steps", column), edges, hold=hold) / np.diff(edges)

    return compute


def _occupancy(log: RunLog, edges: Float) -> Float:
    if log.kv_blocks is None:
        return np.full(len(edges) - 1, np.nan)
    active, cached = log.columns("steps", "kv_blocks_active", "kv_blocks_cached")
    resident = _integral(log, active.astype(np.int64) + cached, edges, hold=True)
    return resident / np.diff(edges) / (log.kv_blocks * log.replicas)


def _tokens(log: RunLog, edges: Float) -> Float:
    start, duration, continuing, accepted = log.columns(
        "steps", "start_ns", "duration_ns", "continuing_seqs", "accepted_tokens"
    )
    first = log.column("requests", "first_token_ns")
    other = np.concatenate([first[first >= 0], log.token_gaps()[0]])
    tokens = _binned(start + duration, continuing + accepted, edges) + _binned(
        other, np.ones(len(other)), edges
    )
    return tokens / (np.diff(edges) / 1e9)


def _ttft(log: RunLog, edges: Float) -> Float:
    released, first = log.columns("requests", "released_ns", "first_token_ns")
    at = first >= 0
    total = _binned(released[at], (first[at] - released[at]) / 1e6, edges)
    return _divide(total, _binned(released[at], np.ones(np.count_nonzero(at)), edges))


SERIES: dict[str, tuple[str, Callable[[RunLog, Float], Float]]] = {
    "gpu_hit_rate": ("", _hits("gpu_hit_tokens")),
    "host_hit_rate": ("", _hits("host_hit_tokens")),
    "compute_saved": ("", _hits("gpu_hit_tokens", "host_hit_tokens")),
    "running": ("sequences", _running),
    "waiting": ("requests", _level("waiting")),
    "batch": ("sequences", _batch),
    "utilisation": ("", _utilisation),
    "kv_blocks_active": ("blocks", _level("kv_blocks_active")),
    "kv_blocks_cached": ("blocks", _level("kv_blocks_cached", hold=True)),
    "kv_occupancy": ("", _occupancy),
    "generated_tokens_per_s": ("tokens/s", _tokens),
    "ttft_ms": ("ms", _ttft),
}
