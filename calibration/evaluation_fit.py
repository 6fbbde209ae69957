"""The constants of how engines are run, each fitted on a few stated rows; every other row judges them.

    step_us, seq_us  time per output token of the measured bf16 rows with 1,024 prompt tokens

fp8_permille     time per output token of the measured fp8 rows on one GPU (no collectives)
reduce_gb_per_s  time to first token of the same rows on two GPUs
http_us          time to first token of four open-loop runs (evaluation_open.CLIENT_RUNS), beyond one step
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

from calibration.evaluation_closed import named_profile, rows
from calibration.evaluation_open import CLIENT_RUNS, stage_figures, stages
from calibration.predict import predict_closed_loop
from calibration.predict_client import ClosedLoop
from calibration.predict_names import profile
from calibration.predict_serving import Serving, serving
from calibration.predict_table import HABITS, engine_of

# Seen on public engines (docs/adr/0003): a step, a sequence.
_ENGINE_US = ([200.0, 0.0], [1500.0, 60.0])
_FP8 = range(850, 1051, 10)
_REDUCE = range(100, 601, 20)


def fit() -> dict[str, Any]:
    """Return the body of `data/serving_constants.json`."""
    step_us, seq_us = _engine_us()
    how = replace(serving("async"), fp8_permille=1000, reduce_gb_per_s=0, http_us=0)
    http_us = _client_us(how)
    how = replace(how, http_us=http_us)
    # Two GPUs' first tokens hardly depend on weight reads, one GPU's tokens not at all on collectives.
    fp8 = _least(_FP8, lambda n: _error(1, "tpot_ms", replace(how, fp8_permille=n)))
    how = replace(how, fp8_permille=fp8)
    reduce = _least(_REDUCE, lambda n: _error(2, "ttft_ms", replace(how, reduce_gb_per_s=n)))
    return {
        "constants": {
            "fp8_permille": fp8,
            "http_us": http_us,
            "reduce_gb_per_s": reduce,
            "seq_us": seq_us,
            "step_us": step_us,
        },
        "provenance": {
            "command": "python -m calibration evaluate --fit --write",
            "fp8_permille": "serving.csv: H200, Llama-3.1-70B fp8, tp 1, time per output token, KV pool not full",
            "reduce_gb_per_s": "serving.csv: H200, Llama-3.1-70B fp8, tp 2, time to first token, KV pool not full",
            "step_us, seq_us": "serving.csv: H100, Qwen3-32B bf16, tp 2, 1,024 prompt tokens, time per output token",
            "http_us": f"dev/open_loop_runs.csv: runs {sorted(CLIENT_RUNS)}, time to first token, median",
        },
    }


def _engine_us() -> tuple[float, float]:
    """Return engine microseconds a step and a sequence, by relative least squares.

    In a closed loop every step gives each sequence one token, so they add step_us + seq_us·concurrency to it.
    """
    table = rows()
    chosen = table[(table.gpu == "H100") & (table.isl == 1024) & ~table.saturated]
    habit = HABITS["equal"]
    gaps = []
    for r in chosen.itertuples():
        client = ClosedLoop(int(r.isl), int(r.osl), int(r.concurrency), spread_permille=habit.spread_permille)
        priced = replace(
            named_profile(r.model, r.gpu, r.precision, r.tp), overhead_ps=0, overhead_per_seq_ps=0
        )
        seen = predict_closed_loop(priced, client, engine_of(str(r.gpu), habit), how=Serving())
        gaps.append(float(r.tpot_ms) - float(seen.tpot_ms.mean or np.nan))
    measured = chosen.tpot_ms.to_numpy()
    terms = np.stack([np.ones(len(chosen)), chosen.concurrency.to_numpy()], axis=1) * 1e-3 / measured[:, None]
    found = lsq_linear(terms, np.array(gaps) / measured, bounds=_ENGINE_US).x
    return round(float(found[0]), 1), round(float(found[1]), 1)


def _client_us(how: Serving) -> int:
    gaps = []
    for r in stages().itertuples():
        if int(r.run) in CLIENT_RUNS:
            priced = profile(str(r.model), str(r.gpu), str(r.precision), int(r.tp)).profile
            gaps.append(float(r.ttft_ms) - float(stage_figures(r, priced, how)[0]))
    return round(max(float(np.median(gaps)), 0.0) * 10) * 100


def _error(tp: int, metric: str, how: Serving) -> float:
    """Return the mean absolute log error of a metric over the fp8 rows of one TP size."""
    table = rows()
    chosen = table[(table.gpu == "H200") & (table.tp == tp) & ~table.saturated]
    habit = HABITS["mixed"]
    out = []
    for r in chosen.itertuples():
        client = ClosedLoop(int(r.isl), int(r.osl), int(r.concurrency), spread_permille=habit.spread_permille)
        priced = named_profile(r.model, r.gpu, r.precision, tp)
        seen = getattr(predict_closed_loop(priced, client, engine_of(str(r.gpu), habit), how=how), metric)
        out.append(abs(np.log(float(seen.mean) / float(getattr(r, metric)))))
    return float(np.mean(out))


def _least(candidates: Iterable[int], loss: Callable[[int], float]) -> int:
    return min(candidates, key=loss)
