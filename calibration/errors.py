"""The error a profile states: measured on rows where there are any, stated wide where there are none."""

from __future__ import annotations

from typing import Any

from calibration import constants as data
from calibration.gpus import Gpu

_FORM = "step time without engine overhead, against composed kernel sums of dense models"
_MOE = {
    "mape_percent": 30.0,
    "p95_percent": 60.0,
    "how": "no rows to check against: a judgement, not a measurement",
}


def stated_error(
    gpu: Gpu, model: str, precision: str, tp: int, *, moe: bool, roofline: bool
) -> dict[str, Any]:
    """Return the `error` object of a profile: mape_percent and p95_percent of step time, how, and by kind
    of step.

    The headline is the worst kind of step, since a workload may consist of it. `serving_tpot` is there
    where the same model, GPU, precision and TP size was measured on a real engine. `moe` stands for all that
    no rows check: experts, latent attention, a GPU from a datasheet file.
    """
    error = _step_error(gpu, model, precision, tp, moe=moe, roofline=roofline)
    name = f"{gpu.key}x{tp}--{model}--{precision} "
    measured = data.read("engine_overhead").get("tpot_error", {})
    serving = {label.removeprefix(name): e for label, e in measured.items() if label.startswith(name)}
    return {**error, "serving_tpot": serving} if serving and not roofline else error


def _step_error(
    gpu: Gpu, model: str, precision: str, tp: int, *, moe: bool, roofline: bool
) -> dict[str, Any]:
    found = data.read("kernel_fit")["keys"].get(f"{gpu.tables}:{precision}")
    if moe:
        return dict(_MOE)
    if found and not roofline:
        return _held_out(found, model, tp)
    checks = data.read("operation_constants")["checks"]
    own = [name for name in checks if name.startswith(gpu.key + "x") and name.endswith(f"--{precision}")]
    if gpu.tables and own and not roofline:
        kinds = checks[own[0]]
        return {**worst(kinds), "how": f"composed steps of {own[0]}, the fitted rows", "by_kind": kinds}
    # A datasheet roofline: the constants of one GPU carried to others, where that could be checked.
    carried = [
        kind for name, kinds in checks.items() if not name.startswith("RTX4090") for kind in kinds.values()
    ]
    return {
        "mape_percent": max(k["mape_percent"] for k in carried),
        "p95_percent": max(k["p95_percent"] for k in carried),
        "how": "roofline: the worst of RTX 4090's constants carried to RTX PRO 6000; not measured here",
    }


def _held_out(found: dict[str, Any], model: str, tp: int) -> dict[str, Any]:
    by_model = found["errors"]
    tps = {int(t) for sizes in by_model.values() for t in sizes}
    size = tp if tp in tps else max(tps)
    own = by_model.get(model, {}).get(str(size))
    how = f"{_FORM}; the fit had not seen " + (model if own else "any of the four: their mean, the worst p95")
    if size != tp:
        how += f"; tp={tp} was not measured: tp={size}'s error"
    if own:
        return {**worst(own), "how": how, "by_kind": own}
    several = [sizes[str(size)] for _, sizes in sorted(by_model.items()) if str(size) in sizes]
    kinds = {k: _pooled([s[k] for s in several]) for k in sorted(several[0])}
    return {**worst(kinds), "how": how, "by_kind": kinds}


def _pooled(errors: list[dict[str, float]]) -> dict[str, float]:
    n = len(errors)
    return {
        "mape_percent": round(sum(e["mape_percent"] for e in errors) / n, 1),
        "p95_percent": max(e["p95_percent"] for e in errors),
        "bias_percent": round(sum(e["bias_percent"] for e in errors) / n, 1),
        "rows": sum(int(e["rows"]) for e in errors),
    }


def worst(kinds: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the headline of errors by kind of step: the largest of each, since a workload may be of that kind."""
    return {f: max(k[f] for k in kinds.values()) for f in ("mape_percent", "p95_percent")}
