"""The error a profile states: measured on rows where there are any, stated wide where there are none."""

from __future__ import annotations

from typing import Any

from calibration import constants as data
from calibration.gpus import Gpu

_FORM = "step time without engine overhead, this form against composed kernel sums of four dense models"
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
    where the same model, GPU, precision and TP size was measured on a real engine.
    """
    error = _step_error(gpu, model, precision, tp, moe=moe, roofline=roofline)
    name = f"{gpu.key}x{tp}--{model}--{precision} "
    measured = data.read("engine_overhead").get("tpot_error", {})
    serving = {label.removeprefix(name): e for label, e in measured.items() if label.startswith(name)}
    return {**error, "serving_tpot": serving} if serving and not roofline else error


def _step_error(
    gpu: Gpu, model: str, precision: str, tp: int, *, moe: bool, roofline: bool
) -> dict[str, Any]:
    form = data.read("form_error")
    by_tp = form["errors"].get(f"{gpu.tables}:{precision}")
    if moe:
        return dict(_MOE)
    if by_tp and not roofline:
        size = tp if str(tp) in by_tp else max(int(t) for t in by_tp)
        kinds = by_tp[str(size)]
        how = _FORM if size == tp else f"{_FORM}; tp={tp} was not measured: tp={size}'s error"
        if model not in form["provenance"]["models"]:
            how += f"; {model} itself was not among them"
        error = {**_worst(kinds), "how": how, "by_kind": kinds}
        c = data.read("step_cost_defaults")["constants"][f"{gpu.tables}:{precision}"]
        error["leave_one_model_out"] = {"mape_percent": c["lomo_mape"], "p95_percent": c["lomo_p95"]}
        return error
    checks = data.read("operation_constants")["checks"]
    own = [name for name in checks if name.startswith(gpu.key + "x") and name.endswith(f"--{precision}")]
    if gpu.tables and own and not roofline:
        kinds = checks[own[0]]
        return {**_worst(kinds), "how": f"composed steps of {own[0]}, the fitted rows", "by_kind": kinds}
    # A datasheet roofline: the constants of one GPU carried to others, where that could be checked.
    carried = [
        kind for name, kinds in checks.items() if not name.startswith("RTX4090") for kind in kinds.values()
    ]
    return {
        "mape_percent": max(k["mape_percent"] for k in carried),
        "p95_percent": max(k["p95_percent"] for k in carried),
        "how": "roofline: the worst of RTX 4090's constants carried to RTX PRO 6000; not measured here",
    }


def _worst(kinds: dict[str, dict[str, float]]) -> dict[str, float]:
    return {f: max(k[f] for k in kinds.values()) for f in ("mape_percent", "p95_percent")}
