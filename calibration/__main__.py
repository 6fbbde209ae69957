"""The command line: build, list and show profiles; refit and check the numbers they are made from."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from calibration import catalog
from calibration import constants as data
from calibration.show import describe
from traces.errors import InputError


def main(argv: list[str] | None = None) -> int:
    """Run one command; return 0, or 2 with one line on stderr where the input is wrong."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args) or 0)
    except InputError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader (head, less) left: nothing more to say, and nothing to say it to.
        sys.stderr.close()
        return 0


def _build(args: argparse.Namespace) -> None:
    from calibration.build import refit, write_all

    if not args.keep_fit:
        refit()
    written, refused = write_all(args.out)
    print(f"{len(written)} profiles written to {args.out}")
    for line in refused:
        print(f"refused: {line}")


def _list(args: argparse.Namespace) -> None:
    print("\n".join(catalog.names()))


def _show(args: argparse.Namespace) -> None:
    profile = catalog.open(args.profile)
    if args.plot is not None:
        from calibration.show_plot import write_plot

        write_plot(profile, args.plot)
    print(describe(profile))


def _check(args: argparse.Namespace) -> None:
    from calibration.check import report

    print(json.dumps(report(args.rows), indent=1, sort_keys=True))


def _operations(args: argparse.Namespace) -> None:
    from calibration.operations import report

    _emit("operation_constants", report(args.folder), args.write)


def _overhead(args: argparse.Namespace) -> None:
    from calibration.overhead import report

    _emit("engine_overhead", report(args.rows), args.write)


def _emit(name: str, body: dict[str, Any], write: bool) -> None:
    text = json.dumps(body, indent=1, sort_keys=True) + "\n"
    print(text, end="")
    if write:
        (data.DATA / f"{name}.json").write_text(text, encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m calibration", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="write every profile of the catalogue")
    build.add_argument("--out", type=Path, default=catalog.PROFILES)
    build.add_argument(
        "--keep-fit",
        action="store_true",
        help="price from the committed fit instead of fitting the rows again",
    )
    build.set_defaults(run=_build)
    commands.add_parser("list", help="print the names of the committed profiles").set_defaults(run=_list)
    show = commands.add_parser("show", help="print what a profile knows, from where, how wrong")
    show.add_argument("profile", help="a profile's name or file")
    show.add_argument("--plot", type=Path, metavar="FILE", help="also draw its curves: .svg, .png or .pdf")
    show.set_defaults(run=_show)
    check = commands.add_parser("check", help="errors of the form against a table of steps")
    check.add_argument("--rows", type=Path, required=True)
    check.set_defaults(run=_check)
    operations = commands.add_parser("operations", help="fit constants to a per-operation profile")
    operations.add_argument("--folder", type=Path, required=True)
    operations.set_defaults(run=_operations)
    overhead = commands.add_parser("overhead", help="fit engine overhead to serving measurements")
    overhead.add_argument("--rows", type=Path, default=data.DATA / "serving.csv")
    overhead.set_defaults(run=_overhead)
    for module in (
        "fit_cli",
        "study_cli",
        "predict_cli",
        "validate_cli",
        "evaluation_cli",
        "measure_cli",
        "memory_cli",
        "sensitivity_cli",
        "parity",
        "roofline_cli",
        "kernel_cli",
    ):
        import_module(f"calibration.{module}").add_parser(commands)
    for command in (operations, overhead):
        command.add_argument(
            "--write", action="store_true", help="also replace the file in calibration/data/"
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
