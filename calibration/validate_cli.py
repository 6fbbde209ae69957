"""`python -m calibration validate PROFILE FILE` and `python -m calibration from-run LOG --profile P`."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibration import catalog
from calibration.predict_cli import engine_options
from calibration.predict_serving import serving
from calibration.rows import read_rows
from calibration.runs import MeasuredRun
from calibration.runs_fit import Calibrated, calibrate
from calibration.runs_read import read_run
from calibration.runs_replay import replay
from calibration.validate import rows_report
from calibration.validate_run import calibration_report, run_report, text
from policies.costs import Profile
from sim.config import EngineConfig
from traces.errors import InputError


def add_parser(commands: Any) -> None:
    """Add both subcommands to an argparse collection."""
    validate = commands.add_parser("validate", help="a profile's errors on measured steps or a measured run")
    validate.add_argument("profile", help="a profile's name or file")
    validate.add_argument(
        "rows", type=Path, help="a table of steps, or a run: vLLM bench JSON, CSV, JSON lines"
    )
    validate.set_defaults(run=_validate)
    from_run = commands.add_parser(
        "from-run", help="replay a measured run, say how wrong, calibrate on its start"
    )
    from_run.add_argument("log", type=Path, help="vLLM bench JSON (--save-detailed), CSV or JSON lines")
    from_run.add_argument("--profile", required=True, help="a profile's name or file")
    from_run.add_argument("--out", type=Path, help="write the calibrated profile here")
    from_run.add_argument("--split", type=float, default=0.5, help="share of the run to calibrate on")
    from_run.set_defaults(run=_from_run)
    for command in (validate, from_run):
        command.add_argument(
            "--engine", nargs="*", default=[], metavar="KEY=VALUE", help="options of the engine"
        )
        command.add_argument(
            "--scheduling",
            default="auto",
            help="auto, sync, async; validate: auto is the profile's own prices",
        )
        command.add_argument("--json", action="store_true", help="print JSON")


def _validate(args: argparse.Namespace) -> None:
    profile, engine = catalog.open(args.profile), EngineConfig(**engine_options(args.engine))
    if _holds_steps(args.rows):
        report = rows_report(profile, read_rows(args.rows))
        print(json.dumps(report, indent=1) if args.json else _steps_text(report))
        return
    run = read_run(args.rows)
    how = serving("profile" if args.scheduling == "auto" else args.scheduling)
    seen, rate = replay(run, profile, engine, how)
    report = run_report(run, seen, rate, engine)
    print(json.dumps(report, indent=1) if args.json else text(report))


def _from_run(args: argparse.Namespace) -> None:
    profile, engine = catalog.open(args.profile), EngineConfig(**engine_options(args.engine))
    run = read_run(args.log)
    habits = ("sync", "async") if args.scheduling == "auto" else (args.scheduling,)
    found = calibrate(run, profile, engine, scheduling=habits, share=args.split)
    report = calibration_report(run, found, engine)
    if args.out is not None:
        written = labelled(found, run, profile, report)
        try:
            args.out.write_text(written.to_json(), encoding="utf-8")
        except OSError as e:
            raise InputError(f"{args.out}: {e.strerror}") from None
    print(json.dumps(report, indent=1) if args.json else text(report))


def labelled(found: Calibrated, run: MeasuredRun, given: Profile, report: dict[str, Any]) -> Profile:
    """Return the calibrated profile with what it came from and how wrong it was on the rest of the run.

    The posterior and bands of the given profile are dropped: they spoke of other prices.
    """
    held = report["held_out"]["after"].get("tpot_ms", {})
    return replace(
        found.profile,
        identity={**given.identity, "timing": "measured"},
        provenance={
            **given.provenance,
            "command": "python -m calibration from-run",
            "calibrated_on": {"run": run.name, **report["calibrated"]},
            "from_profile": given.name,
        },
        error={
            **{k: held[k] for k in ("mape_percent", "p95_percent", "bias_percent") if k in held},
            "how": "time per output token of the requests of the run that were not fitted",
        },
        posterior={},
        bands={},
    )


def _holds_steps(path: Path) -> bool:
    if path.suffix == ".parquet":
        return True
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            head = file.readline(4096)
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from None
    return path.name.endswith(".csv.gz") or {"kind", "batch", "time_ns"} <= set(head.strip().split(","))


def _steps_text(report: dict[str, Any]) -> str:
    lines = [f"{report['profile']} on {report['rows']} steps; intervals: {report['interval']}"]
    parts = {"all": report["all"], **report["by_kind"], **report["by_batch"]}
    for name, e in parts.items():
        cover = f"  covered {e['coverage_percent']} %" if "coverage_percent" in e else ""
        lines.append(
            f"  {name:18} MAPE {e['mape_percent']:5} %  p95 {e['p95_percent']:5} %  bias {e['bias_percent']:+6} %"
            f"{cover}  ({e['rows']})"
        )
    return "\n".join(lines)
