"""Reads measured runs: the JSON of `vllm bench serve --save-result --save-detailed`, CSV and JSON lines.

A log of requests (CSV with a header, or one JSON object a line) needs prompt_tokens, output_tokens, and either
e2e or ttft with the times between tokens. Columns are known by the names benchmarks give them; a name that ends
with _ms, _s or _ns says its unit, without one it is seconds, as in vLLM.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.runs import MeasuredRun, build_run
from traces.errors import InputError, at

_MAX_BYTES = 1 << 30
_NAMES: dict[str, tuple[str, ...]] = {
    "prompt_tokens": ("prompt_tokens", "input_tokens", "prompt_len", "input_len", "in_toks", "isl"),
    "output_tokens": ("output_tokens", "completion_tokens", "output_len", "out_toks", "osl"),
    "arrival": ("arrival", "start", "start_time", "sent", "timestamp"),
    "ttft": ("ttft", "time_to_first_token"),
    "first": ("first", "first_token", "first_token_time"),
    "e2e": ("e2e", "latency", "e2e_latency", "request_latency", "e2el"),
    "last": ("last", "end", "finished", "end_time"),
    "itls": ("itls", "inter_token_latencies"),
}
_UNITS = {"_ms": 1.0, "_s": 1e3, "_ns": 1e-6, "": 1e3}


def read_run(path: Path) -> MeasuredRun:
    """Return the run in a file; raises InputError naming file, line and field."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path}: a run's log is at most {_MAX_BYTES >> 30} GiB")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    if not text.lstrip().startswith("{"):
        return _from_records(path, _csv_records(path, text))
    try:
        body = json.loads(text)
    except json.JSONDecodeError:
        return _from_records(path, _json_lines(path, text))
    if isinstance(body, dict) and "input_lens" not in body and "ttfts" not in body:
        if any(n in body for n in _NAMES["prompt_tokens"]):
            return _from_records(path, [(1, body)])
        raise InputError(
            f"{at(path, field='input_lens')}: missing: rerun vllm bench serve with --save-detailed"
        )
    return _bench(path, body)


def _bench(path: Path, body: dict[str, Any]) -> MeasuredRun:
    for name in ("input_lens", "output_lens", "ttfts", "itls"):
        if not isinstance(body.get(name), list):
            raise InputError(f"{at(path, field=name)}: expected a list: rerun with --save-detailed")
    n = len(body["input_lens"])
    for name in ("output_lens", "ttfts", "itls", "start_times", "errors"):
        if name in body and len(body[name] or []) not in (0, n):
            raise InputError(f"{at(path, field=name)}: {len(body[name])} values, expected {n}")
    failed = np.array([bool(e) for e in body.get("errors") or [""] * n])
    try:
        ttft = np.array(body["ttfts"], dtype=np.float64) * 1e3
        rest = np.array([float(np.sum(np.asarray(x, dtype=np.float64))) * 1e3 for x in body["itls"]])
        columns = {
            "prompt_tokens": np.array(body["input_lens"], dtype=np.float64),
            "output_tokens": np.array(body["output_lens"], dtype=np.float64),
            "ttft_ms": ttft,
            "e2e_ms": np.where(failed, np.nan, ttft + rest),
        }
        if body.get("start_times"):
            columns["arrival_s"] = np.array(body["start_times"], dtype=np.float64)
        rate = float(body.get("request_rate") or "inf")
    except (TypeError, ValueError) as e:
        raise InputError(f"{path}: not numbers: {e}") from None
    return build_run(
        path.stem,
        columns,
        max_concurrency=body.get("max_concurrency"),
        rate_per_s=rate if np.isfinite(rate) else None,
    )


def _from_records(path: Path, records: list[tuple[int, dict[str, Any]]]) -> MeasuredRun:
    if not records:
        raise InputError(f"{path}: no requests")
    keys = {str(k).strip().lower(): k for k in records[0][1]}
    found = {what: _find(keys, what) for what in _NAMES}
    for what in ("prompt_tokens", "output_tokens"):
        if found[what] is None:
            raise InputError(f"{at(path, records[0][0], what)}: missing; found {', '.join(sorted(keys))}")
    read = {
        what: _column(
            path, records, place[0], place[1] if what not in ("prompt_tokens", "output_tokens") else 1.0
        )
        for what, place in found.items()
        if place is not None and what != "itls"
    }
    nan = np.full(len(records), np.nan)
    arrival, ttft, e2e = read.get("arrival"), read.get("ttft"), read.get("e2e")
    if ttft is None:
        ttft = read["first"] - arrival if "first" in read and arrival is not None else nan
    if e2e is None and "last" in read and arrival is not None:
        e2e = read["last"] - arrival
    if e2e is None and found["itls"] is not None:
        e2e = ttft + _sums(path, records, *found["itls"])
    if e2e is None:
        raise InputError(f"{at(path, records[0][0], 'e2e_ms')}: missing; found {', '.join(sorted(keys))}")
    columns = {**{k: read[k] for k in ("prompt_tokens", "output_tokens")}, "ttft_ms": ttft, "e2e_ms": e2e}
    if arrival is not None:
        columns["arrival_s"] = arrival / 1e3
    return build_run(path.stem, columns)


def _find(keys: dict[str, Any], what: str) -> tuple[Any, float] | None:
    """Return (the file's key, ms a unit) of a quantity, None where it is not there."""
    for name in _NAMES[what]:
        for suffix, unit in _UNITS.items():
            if name + suffix in keys:
                return keys[name + suffix], unit
    return None


def _column(
    path: Path, records: list[tuple[int, dict[str, Any]]], key: Any, unit: float
) -> NDArray[np.float64]:
    out = np.empty(len(records))
    for i, (line, record) in enumerate(records):
        value = record.get(key)
        try:
            out[i] = np.nan if value is None or value == "" else float(value) * unit
        except (TypeError, ValueError):
            raise InputError(f"{at(path, line, str(key))}: got {value!r}, expected a number") from None
    return out


def _sums(
    path: Path, records: list[tuple[int, dict[str, Any]]], key: Any, unit: float
) -> NDArray[np.float64]:
    out = np.empty(len(records))
    for i, (line, record) in enumerate(records):
        try:
            out[i] = float(np.sum(np.asarray(record[key], dtype=np.float64))) * unit
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{at(path, line, str(key))}: expected a list of numbers") from None
    return out


def _csv_records(path: Path, text: str) -> list[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(text.splitlines())
    try:
        return [(reader.line_num, row) for row in reader]
    except csv.Error as e:
        raise InputError(f"{path}:{reader.line_num}: {e}") from None


def _json_lines(path: Path, text: str) -> list[tuple[int, dict[str, Any]]]:
    out = []
    for line, words in enumerate(text.splitlines(), 1):
        if not words.strip():
            continue
        try:
            record = json.loads(words)
        except json.JSONDecodeError as e:
            raise InputError(f"{path}:{line}: not JSON: {e.msg}") from None
        if not isinstance(record, dict):
            raise InputError(f"{path}:{line}: expected a JSON object")
        out.append((line, record))
    return out
