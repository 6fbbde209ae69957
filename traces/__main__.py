"""`python -m traces describe | convert | recurrence | generate`: look at, convert and make workloads."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from traces import formats, workloads
from traces.command_generate import add_arguments, generate
from traces.describe import describe
from traces.describe_text import render
from traces.errors import InputError
from traces.export import to_json, write
from traces.recurrence_keys import SOURCES, measure
from traces.schema import Workload

_FILE_HELP = "a trace file or folder, or the name of an embedded workload"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print one line and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit status (0, or 2 after one line on stderr)."""
    args = _parser().parse_args(arguments)
    try:
        if args.command == "describe":
            described = describe(_load(args.file, args.format, args.option))
            print(to_json(described) if args.json else render(described))
        elif args.command == "recurrence":
            print(to_json(measure(args.file, args.format)))
        elif args.command == "convert":
            workload = _load(args.source, args.format, args.option)
            write(workload, args.out)
            print(f"{args.out}: {workload.n_workflows} workflows, {workload.n_requests} requests")
            for reason, count in (workload.provenance.get("not_imported") or {}).items():
                print(f"not imported: {count} {reason}")
        else:
            workload = generate(args)
            write(workload, args.out)
            print(f"{args.out}: {workload.n_workflows} workflows, {workload.n_requests} requests")
        sys.stdout.flush()
    except InputError as e:
        print(" ".join(str(e).splitlines()), file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader (head, less) has gone; nothing more to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m traces", description=__doc__, allow_abbrev=False)
    metavar = "describe | convert | recurrence | generate"
    commands = parser.add_subparsers(dest="command", required=True, metavar=metavar)
    known = ", ".join(formats.names())
    for name, text in (
        ("describe", "print what a trace holds"),
        ("convert", "read a trace and write it as .workload or .csv"),
    ):
        command = commands.add_parser(
            name, help=text, description=f"{text}; formats: {known}", allow_abbrev=False
        )
        command.add_argument(
            "file" if name == "describe" else "source", type=Path, metavar="FILE", help=_FILE_HELP
        )
        if name == "convert":
            command.add_argument("out", type=Path, metavar="OUT", help="suffix .workload or .csv")
        else:
            command.add_argument("--json", action="store_true", help="print JSON")
        command.add_argument("--format", metavar="NAME", help=f"{known} (default: recognised by content)")
        command.add_argument(
            "--option", action="append", default=[], metavar="NAME=VALUE", help="option of the importer"
        )
    command = commands.add_parser(
        "recurrence",
        help="print how much of what a public set asks for was asked for before",
        description="Shares under every key of the set, as JSON.",
        allow_abbrev=False,
    )
    command.add_argument("file", type=Path, metavar="FILE", help="file or folder of the original set")
    command.add_argument("--format", required=True, metavar="NAME", help=", ".join(SOURCES))
    command = commands.add_parser("generate", help="make a seeded synthetic workload", allow_abbrev=False)
    add_arguments(command)
    return parser


def _load(path: Path, form: str | None, given: Sequence[str]) -> Workload:
    """Return the workload of a file, or the embedded one of that name."""
    is_name = not path.exists() and not path.suffix and len(path.parts) == 1
    if is_name and form is None and not given:
        return workloads.open(str(path))
    return formats.load(path, form, **_options(given))


def _options(given: Sequence[str]) -> dict[str, str]:
    out = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"--option {text}: expected NAME=VALUE")
        out[name] = value
    return out


if __name__ == "__main__":
    sys.exit(main())
