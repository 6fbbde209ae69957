"""A profile against a measured run: the run's own requests through the simulator, errors by latency and load."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.predict_latency import Latencies
from calibration.runs import MeasuredRun
from calibration.runs_fit import Calibrated
from calibration.runs_replay import compare
from sim.config import EngineConfig

# Upper ends of the classes of utilisation: requests in flight, as a share of the engine's seats.
_LOADS = (0.25, 0.5, 0.8, 1.0)


def in_flight(run: MeasuredRun) -> NDArray[np.int64] | None:
    """Return the requests in flight when each was sent, itself included, int64[N]; None without arrivals."""
    if run.arrival_ns is None:
        return None
    ends = np.sort(run.arrival_ns + np.rint(run.e2e_ms * 1e6).astype(np.int64))
    return np.arange(1, len(run) + 1) - np.searchsorted(ends, run.arrival_ns, side="right")


def run_report(run: MeasuredRun, seen: Latencies, throughput: float, engine: EngineConfig) -> dict[str, Any]:
    """Return errors in percent over all requests and by utilisation, and throughput beside the measured one."""
    out: dict[str, Any] = {"run": run.name, "requests": len(run), "dropped": run.dropped}
    out["all"] = compare(run, seen)
    busy = in_flight(run)
    if busy is not None:
        share = busy / engine.max_num_seqs
        out["by_utilisation"] = {}
        low = 0.0
        for high in (*_LOADS, np.inf):
            name = f"{low:.0%} to {high:.0%}" if np.isfinite(high) else f"over {low:.0%} (queued)"
            found = compare(run, seen, (share > low) & (share <= high))
            if found:
                out["by_utilisation"][name] = found
            low = float(high)
        measured = run.throughput_tok_s()
        out["throughput_tok_s"] = {
            "measured": round(measured, 1),
            "predicted": round(throughput, 1),
            "error_percent": round(100 * (throughput / measured - 1), 1),
        }
    return out


def calibration_report(run: MeasuredRun, c: Calibrated, engine: EngineConfig) -> dict[str, Any]:
    """Return what was calibrated, and errors before and after on the part of the run that did not take part."""
    rest = ~c.fitted
    return {
        **run_report(run, c.before, c.throughput_before, engine),
        "calibrated": {
            "scheduling": c.scheduling,
            "kernels_factor": round(c.kernels, 3),
            "overhead_us": c.profile.overhead_ps / 1e6,
            "overhead_seq_us": c.profile.overhead_per_seq_ps / 1e6,
            "http_ms": c.profile.http_overhead_ps / 1e9,
            "fitted_requests": int(c.fitted.sum()),
        },
        "held_out": {
            "requests": int(rest.sum()),
            "before": compare(run, c.before, rest),
            "after": compare(run, c.after, rest),
        },
    }


def text(report: dict[str, Any]) -> str:
    """Return a report of this module as lines."""
    lines = [f"{report['run']}: {report['requests']} requests" + _dropped(report["dropped"])]
    lines += _block("all requests, profile as given", report["all"])
    for load, errors in report.get("by_utilisation", {}).items():
        lines += _block(f"utilisation {load}", errors)
    if "throughput_tok_s" in report:
        t = report["throughput_tok_s"]
        lines.append(
            f"throughput: measured {t['measured']:g} tokens/s, predicted {t['predicted']:g} ({t['error_percent']:+g} %)"
        )
    if "calibrated" in report:
        c, held = report["calibrated"], report["held_out"]
        lines.append(
            f"calibrated on the first {c['fitted_requests']} requests: {c['scheduling']} scheduling, kernels x "
            f"{c['kernels_factor']}, engine {c['overhead_us']:g} us a step and {c['overhead_seq_us']:g} us a sequence, "
            f"client {c['http_ms']:g} ms"
        )
        lines += _block(f"the {held['requests']} other requests, before", held["before"])
        lines += _block(f"the {held['requests']} other requests, after", held["after"])
    return "\n".join(lines)


def _block(title: str, errors: dict[str, Any]) -> list[str]:
    if not errors:
        return [f"{title}: too few requests"]
    return [
        f"{title}:",
        *(
            f"  {name:8} MAPE {e['mape_percent']:5} %  p95 {e['p95_percent']:5} %  bias {e['bias_percent']:+6} %  "
            f"mean {e['mean_error_percent']:+6} %  "
            f"median {e['median_error_percent']:+6} %  p99 {e['p99_error_percent']:+6} %"
            f"  ({e['rows']})"
            for name, e in errors.items()
        ),
    ]


def _dropped(counts: dict[str, int]) -> str:
    return "".join(f"; {n} left out: {why}" for why, n in counts.items())
