"""The numbers that `calibration/data/` holds: efficiency constants, all-reduce times, engine overhead."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from calibration.gpus import Gpu
from traces.errors import InputError

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Constants:
    """Efficiency of one GPU at one precision in the smooth-maximum form (docs/adr/0003).

    weights, flops, kv, attention   multiply the datasheet terms
    layer_us, seq_us                microseconds a layer and a sequence
    power                           exponent of the smooth maximum
    source                          key in the data file, for provenance
    knots                           ten-thousandths that multiply the smooth maximum (calibration.knots)
    reduce                          multiplies the tables' all-reduce: what kernels do not hide of it
    """

    weights: float
    flops: float
    kv: float
    attention: float
    layer_us: float
    seq_us: float
    fixed_ms: float
    power: float
    source: str
    knots: tuple[int, ...] = ()
    reduce: float = 1.0


@dataclass(frozen=True)
class Overhead:
    """Engine CPU time that kernels do not hide: `fixed_us` a step and `seq_us` a sequence."""

    fixed_us: float
    seq_us: float
    source: str


@cache
def read(name: str) -> dict[str, Any]:
    """Return the object in `calibration/data/<name>.json`."""
    body: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return body


def constants(key: str, tp: int = 1) -> Constants:
    """Return the constants under `key`, e.g. "h200_sxm:bf16", for models over `tp` GPUs.

    Where kernel tables were fitted there is a set a TP size: smaller shards run less efficiently. A size that was
    not measured takes the next larger one, or the largest.
    """
    fitted = read("kernel_fit")["keys"]
    if key not in fitted:
        return from_body(_all_constants()[key], key)
    by_tp = fitted[key]["constants"]
    return from_fit(by_tp[size_of(by_tp, tp)])


def size_of(by_tp: Mapping[str, Any], tp: int) -> str:
    """Return the key of `by_tp` that stands for `tp`: the smallest at least as large, else the largest."""
    larger = [size for size in by_tp if int(size) >= tp]
    return min(larger, key=int) if larger else max(by_tp, key=int)


def from_body(c: Mapping[str, Any], key: str) -> Constants:
    """Return constants from an object of `step_cost_defaults.json` or `operation_constants.json`."""
    return Constants(
        c["W"], c["F"], c["KV"], c["A"], c["us_per_layer"], c["us_per_seq"], c["c0_ms"], c["p"], key
    )


def from_fit(c: Mapping[str, Any]) -> Constants:
    """Return constants from an object of `kernel_fit.json`: a fit's constants, or one of its draws."""
    fields = {name: c[name] for name in Constants.__dataclass_fields__}
    return Constants(**{**fields, "knots": tuple(c["knots"])})


def constants_key(gpu: Gpu, precision: str) -> str:
    """Return the data key of the constants that price `gpu` at `precision`.

    Its own where they were fitted, else those of the GPU named nearest, else bf16's. Raises InputError
    where the GPU cannot multiply in `precision`.
    """
    if gpu.flop_per_s(precision) == 0:
        raise InputError(f"{gpu.key} has no {precision} tensor cores: use precision bf16")
    fitted = gpu.tables or gpu.nearest
    key = f"{fitted}:{precision}"
    return key if key in _all_constants() or key in read("kernel_fit")["keys"] else f"{fitted}:bf16"


def _all_constants() -> dict[str, dict[str, float]]:
    return {**read("step_cost_defaults")["constants"], **read("operation_constants")["constants"]}


def overhead() -> Overhead:
    """Return vLLM's overhead constants, fitted on public serving measurements."""
    o = read("engine_overhead")
    return Overhead(o["fixed_us"], o["seq_us"], o["from"])


def all_reduce_us(gpu: Gpu, tp: int, message_bytes: int) -> float:
    """Return microseconds of one all-reduce of `message_bytes` over `tp` GPUs; 0 for one GPU.

    From the kernel table where NVLink joins the GPUs, straight lines between its sizes; beyond 8 ranks it
    is not known. Without NVLink: a ring over PCIe, 2·(tp-1)/tp of the message at the host link's rate, and
    25 us.
    """
    if tp == 1:
        return 0.0
    if tp not in (2, 4, 8):
        raise InputError(f"tp={tp}: all-reduce times are known for 1, 2, 4 and 8 GPUs")
    if not gpu.nvlink:
        return 25.0 + 2 * (tp - 1) / tp * message_bytes / gpu.pcie_bytes_per_s * 1e6
    tables = read("all_reduce")["tables"]
    points = tables[gpu.tables if gpu.tables in tables else "h100_sxm"][str(tp)]
    sizes = [p[0] for p in points]
    i = bisect_right(sizes, message_bytes)
    if i == 0:
        return float(points[0][1])
    i = min(i, len(points) - 1)
    (x0, y0), (x1, y1) = points[i - 1], points[i]
    return float(y0 + (y1 - y0) * (message_bytes - x0) / (x1 - x0))
