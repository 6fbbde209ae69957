"""A bucketer's plan as vLLM's arguments: which widths are captured as CUDA graphs, and for which steps."""

from __future__ import annotations

from typing import Any

from policies.api import Bucketer, HostInfo
from traces.errors import InputError

MODES = {
    "full_and_piecewise": "FULL_AND_PIECEWISE",
    "full_decode_only": "FULL_DECODE_ONLY",
    "piecewise": "PIECEWISE",
    "none": "NONE",
}


def graph_arguments(bucketer: Bucketer[Any], host: HostInfo) -> dict[str, Any]:
    """Return arguments of `LLM(...)` under which vLLM captures what the bucketer plans.

    vLLM picks its graphs itself: the narrowest captured width that holds the step. Raises InputError for a bucketer
    that captures while serving, or that picks by another rule.
    """
    name = type(bucketer).__name__
    if not bucketer.active() or getattr(bucketer, "mode", "") == "none":
        return {"enforce_eager": True}
    if getattr(bucketer, "mode", "") not in MODES:
        raise InputError(
            f"{name} picks graphs by a rule that vLLM does not have; allowed: vllm_ladder, eager"
        )
    for option in ("lazy", "eager_above"):
        if getattr(bucketer, option, None):
            raise InputError(f"{name}: {option}={getattr(bucketer, option)} is no option of vLLM's")
    return {
        "compilation_config": {
            "cudagraph_capture_sizes": list(bucketer.plan(host)),
            "cudagraph_mode": MODES[getattr(bucketer, "mode", "")],
        }
    }
