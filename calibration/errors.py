"""The error a profile states: measured on rows where there are any, stated wide where there are none."""

from __future__ import annotations

from typing import Any

from calibration import constants as data
from calibration.gpus import Gpu


def stated_error(g: Gpu, key: str, tp: int, *, fitted: bool, moe: bool) -> dict[str, Any]:
    """Return the `error` object of a profile (percent, of step time without engine overhead).

    fitted   the GPU's own kernel tables; else a roofline with constants borrowed from `key`
    """
    c = data.read("step_cost_defaults")["constants"][key]
    if fitted:
        return {
            "mape_percent": c["mape"],
            "p95_percent": c["p95"],
            "how": "absolute percentage error against composed kernel sums, fit rows of one GPU",
            "leave_one_model_out": {"mape_percent": c["lomo_mape"], "p95_percent": c["lomo_p95"]},
        }
    return {"mape_percent": 30.0, "p95_percent": 60.0, "how": "not measured"}
