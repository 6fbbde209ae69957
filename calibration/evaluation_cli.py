"""`python -m calibration evaluate`: errors on measured rows that were not fitted."""

from __future__ import annotations

import argparse
import json
from typing import Any

from calibration import constants as data
from calibration import evaluation, evaluation_closed, evaluation_open, evaluation_trace
from calibration.validate_run import text


def add_parser(commands: Any) -> None:
    """Add the subcommand to an argparse collection."""
    parser = commands.add_parser("evaluate", help="errors on measured serving rows that were not fitted")
    parser.add_argument(
        "--flags", action="store_true", help="the range that unstated engine flags give instead"
    )
    parser.add_argument("--fit", action="store_true", help="refit the three serving constants instead")
    parser.add_argument("--write", action="store_true", help="--fit: also replace the data file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print the report."""
    if args.fit:
        from calibration.evaluation_fit import fit

        body = json.dumps(fit(), indent=1, sort_keys=True) + "\n"
        print(body, end="")
        if args.write:
            (data.DATA / "serving_constants.json").write_text(body, encoding="utf-8")
        return
    if args.flags:
        print(json.dumps(evaluation_closed.flag_range(), indent=1))
        return
    cases = evaluation.with_linear([*evaluation_closed.cases(), *evaluation_open.cases()])
    body_of = {"rows": evaluation.report(cases), "trace": evaluation_trace.report()}
    if args.json:
        print(json.dumps(body_of, indent=1))
        return
    print(evaluation.text(body_of["rows"]))
    for habit in ("sync", "async"):
        print(f"\nRTX PRO 6000 trace, not calibrated, {habit} scheduling")
        print(text(body_of["trace"][habit]))
    print("\nRTX PRO 6000 trace, calibrated on its first half")
    print(text(body_of["trace"]["calibrated"]))
