"""Writing a workload to a file, native or plain CSV. What a format cannot hold is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from traces import store
from traces.errors import InputError, nearest
from traces.schema import StageKind, Workload

SUFFIXES = (store.SUFFIX, ".csv")


def write(workload: Workload, path: Path) -> None:
    """Write by the suffix of `path`, a whole file or none; InputError when it cannot hold the workload."""
    if path.suffix == store.SUFFIX:
        store.save(workload, path)
    elif path.suffix == ".csv":
        store.write_whole(path, to_csv(workload).encode())
    else:
        raise InputError(f"{path}: {nearest(path.suffix, SUFFIXES, what='output suffix')}")


def to_csv(workload: Workload) -> str:
    """Return `arrival_s,prompt_tokens,output_tokens` rows; arrivals are exact to the nanosecond.

    Raises InputError where rows would lose something: several stages a workflow, prefix identity, agents or
    output ids, or no arrival times.
    """
    w = workload
    if w.workflow_arrival_ns is None:
        raise InputError(
            f"{w.name}: a CSV needs arrival times and this workload has none; write {store.SUFFIX}"
        )
    losses = {
        "workflows of several stages": w.n_stages != w.n_workflows or np.any(w.stage_kind != StageKind.LLM),
        "prefix identity": len(w.prefix) > 0,
        "agents": len(w.agents) > 0,
        "output token ids": w.output_ids is not None,
    }
    lost = [name for name, is_lost in losses.items() if is_lost]
    if lost:
        raise InputError(f"{w.name}: a CSV cannot hold its {', '.join(lost)}; write {store.SUFFIX}")
    columns = zip(
        w.workflow_arrival_ns.tolist(), w.prompt_tokens.tolist(), w.output_tokens.tolist(), strict=True
    )
    rows = [f"{_seconds(time_ns)},{prompt},{output}\n" for time_ns, prompt, output in columns]
    return "arrival_s,prompt_tokens,output_tokens\n" + "".join(rows)


def to_json(value: object) -> str:
    """Return JSON with a fixed key order, for machines."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)


def _seconds(time_ns: int) -> str:
    whole, fraction = divmod(time_ns, 1_000_000_000)
    return f"{whole}.{fraction:09d}".rstrip("0").rstrip(".") if fraction else f"{whole}.0"
