"""`python -m kernels check | interpret | verify | bench`: kernels compiled or interpreted without a GPU, or on one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NoReturn, Protocol

from traces.errors import InputError


class Command(Protocol):
    """One subcommand: a module of the package, imported only when its name is given or its help is asked for."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the subcommand's options."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Run it; return the exit status."""
        ...


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print one line and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Returns 0; 1 where a kernel is not as it must be; 2 after one line on stderr for what the user can mend.
    """
    try:
        _need("torch", "triton")
        parser, commands = _parser()
        args = parser.parse_args(arguments)
        status = commands[args.command].run(args)
        sys.stdout.flush()
    except InputError as e:
        print(" ".join(str(e).splitlines()), file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader (head, less) has gone; nothing more to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _need(*modules: str) -> None:
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise InputError(
            f"python -m kernels: {', '.join(missing)} not installed; pip install 'foreserve[kernels]'"
        )


def _parser() -> tuple[argparse.ArgumentParser, dict[str, Command]]:
    from kernels import bench_command, check_command, interpret_command, verify_command

    commands: dict[str, Command] = {
        "check": check_command, "interpret": interpret_command, "verify": verify_command, "bench": bench_command,
    }  # fmt: skip
    parser = _Parser(prog="python -m kernels", description=__doc__, allow_abbrev=False)
    choices = parser.add_subparsers(dest="command", required=True, metavar=" | ".join(commands))
    for name, module in commands.items():
        text = (sys.modules[f"kernels.{name}_command"].__doc__ or "").strip()
        command = choices.add_parser(
            name, help=text.splitlines()[0], description=text, allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        module.add_arguments(command)
    return parser, commands


if __name__ == "__main__":
    sys.exit(main())
