"""Engine overhead from serving measurements: what a token takes beyond the kernels, by least squares.

In a closed loop every step gives each running sequence one token, so overhead adds exactly c0 +
cs·concurrency to the time per output token of the kernels alone. Both are held to the range seen on real
engines (docs/adr/0003).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from calibration import constants as data
from calibration.closed_loop import closed_loop_tpot_ps
from calibration.form import price
from calibration.gpus import gpu
from calibration.models import model
from calibration.stats import absolute_error
from policies.costs import Profile

SERVING = data.DATA / "serving.csv"
# Above this time to first token the KV pool is saturated and requests queue; such rows say nothing of a step.
_SATURATED_TTFT_MS = 2000
_FIXED_US, _SEQ_US = (200.0, 1500.0), (0.0, 60.0)


def kernel_profile(gpu_key: str, model_name: str, precision: str, tp: int) -> Profile:
    """Return a profile without engine overhead."""
    g = gpu(gpu_key)
    c = data.constants(data.constants_key(g, precision), tp)
    shard = model(model_name).shard(tp)
    return price(
        shard, g, precision, c, data.Overhead(0.0, 0.0, "none"), timing="roofline", provenance={}, error={}
    )


def kernel_tpot_ms(rows: pd.DataFrame) -> NDArray[np.float64]:
    """Return the predicted time per output token without overhead, float64[rows] in ms."""
    out = []
    profiles: dict[tuple[str, str, str, int], Profile] = {}
    for r in rows.itertuples():
        key = (str(r.gpu), str(r.model), str(r.precision), int(r.tp))
        if key not in profiles:
            profiles[key] = kernel_profile(*key)
        out.append(closed_loop_tpot_ps(profiles[key], int(r.isl), int(r.osl), int(r.concurrency)) / 1e9)
    return np.array(out)


def report(path: Path = SERVING) -> dict[str, Any]:
    """Fit on H100 rows with 1,024 prompt tokens, check on all; the body of `data/engine_overhead.json`."""
    rows = pd.read_csv(path)
    rows = rows[rows.ttft_ms < _SATURATED_TTFT_MS].reset_index(drop=True)
    kernel = kernel_tpot_ms(rows)
    measured = rows.tpot_ms.to_numpy()
    fitted = ((rows.gpu == "H100") & (rows.isl == 1024)).to_numpy()
    terms = np.c_[np.ones(len(rows)), rows.concurrency.to_numpy()] * 1e-3 / measured[:, None]
    found = lsq_linear(
        terms[fitted],
        (1 - kernel / measured)[fitted],
        bounds=([_FIXED_US[0], _SEQ_US[0]], [_FIXED_US[1], _SEQ_US[1]]),
    )
    fixed_us, seq_us = (round(float(x), 1) for x in found.x)
    error = (kernel + (fixed_us + seq_us * rows.concurrency.to_numpy()) * 1e-3) / measured - 1
    labels = rows.gpu + "x" + rows.tp.astype(str) + "--" + rows.model + "--" + rows.precision
    labels += " isl " + rows.isl.astype(str)
    return {
        "fixed_us": fixed_us,
        "seq_us": seq_us,
        "from": "vLLM 0.12, H100 SXM x2, Qwen3-32B (labelled fp8, timings fit bf16), "
        "1,024 prompt tokens, concurrency 8 to 128",
        "provenance": {
            "rows": "calibration/data/serving.csv: measured means of aiconfigurator-core 0.12.0 (Apache-2.0)",
            "command": "python -m calibration overhead --write",
            "bounds": "fixed 200 to 1500 us, a sequence 0 to 60 us; rows above 2 s to first token left out",
            "not_modelled": "asynchronous scheduling, which later versions hide part of this behind",
        },
        "tpot_error": {
            str(label): {
                **absolute_error(error[labels == label]),
                "fitted": bool(fitted[labels == label].all()),
            }
            for label in sorted(labels.unique())
        },
    }
