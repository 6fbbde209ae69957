"""The RTX PRO 6000 trace, request by request: a GPU priced by datasheet with another GPU's constants."""

from __future__ import annotations

from typing import Any

from calibration import constants as data
from calibration.predict_names import profile
from calibration.predict_serving import serving
from calibration.runs_fit import calibrate
from calibration.runs_read import read_run
from calibration.runs_replay import replay
from calibration.validate_run import calibration_report, run_report
from sim.config import EngineConfig

TRACE = data.DATA / "dev" / "rtxpro6000_requests.csv"
# As the run's record states; the prefix cache hardly matters, since its prompts share nothing known.
ENGINE = EngineConfig(max_num_seqs=128, max_num_batched_tokens=2048)


def report() -> dict[str, Any]:
    """Return errors of the uncalibrated profile under both habits, and after calibration on the first half."""
    run = read_run(TRACE)
    priced = profile("Llama-3.1-8B", "RTXPRO6000", "bf16", 1).profile
    out: dict[str, Any] = {}
    for habit in ("sync", "async"):
        seen, rate = replay(run, priced, ENGINE, serving(habit))
        out[habit] = run_report(run, seen, rate, ENGINE)
    out["calibrated"] = calibration_report(run, calibrate(run, priced, ENGINE), ENGINE)
    return out
