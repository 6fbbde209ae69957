"""`python -m calibration study WHAT` and `compare A B`: the evidence behind the form, printed."""

from __future__ import annotations

import argparse
import json

from calibration import catalog
from calibration.compare import compare
from traces.errors import InputError

STUDIES = ("forms", "recovery", "verification")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `study` and `compare`."""
    study = commands.add_parser(
        "study", help="forms, verification or recovery: why the form, how far it holds"
    )
    study.add_argument("what", choices=STUDIES)
    study.add_argument("--json", action="store_true", help="print the figures as JSON")
    study.add_argument("--repetitions", type=int, default=200, help="of recovery")
    study.set_defaults(run=_study)
    pair = commands.add_parser("compare", help="two profiles side by side, by kind of step")
    pair.add_argument("a", help="a profile's name or file")
    pair.add_argument("b", help="a profile's name or file")
    pair.set_defaults(run=lambda args: print(compare(catalog.open(args.a), catalog.open(args.b))))


def _study(args: argparse.Namespace) -> None:
    if args.what == "forms":
        from calibration import study_forms

        found = study_forms.study()
        print(json.dumps(found, indent=1) if args.json else study_forms.text(found))
    elif args.what == "verification":
        from calibration import study_verification

        points = study_verification.study()
        print(json.dumps(points, indent=1) if args.json else study_verification.text(points))
    else:
        from calibration import study_recovery

        if args.repetitions < 1:
            raise InputError(f"--repetitions: got {args.repetitions}, expected at least 1")
        print(
            json.dumps(study_recovery.recovery(study_recovery.default_target(), args.repetitions), indent=1)
        )
