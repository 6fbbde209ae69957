"""The command line: `python -m experiments COMMAND`. Errors are one line on stderr, with status 2."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from traces.errors import InputError, nearest

COMMANDS = {
    "run": "run a comparison and report it (the main job without further words)",
    "list": "what there is: experiments, sweeps, policies with options, workloads, profiles, stored runs",
    "report": "write an experiment's summary and report again",
    "plot": "draw one figure of an experiment",
    "trace": "export a run for Perfetto or Chrome",
    "bench": "time the simulator",
    "doctor": "check this installation",
    "train": "fit predictors on recorded workflows, compare them on others, measure what they cost",
    "reproduce": "run what a paper reports, and print a report card",
    "waterfall": "where the time that early fill could hide is lost, by workload and load",
    "fuzz": "random workloads, configs, policies and faults against the invariants",
}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, rather than in a page of usage."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {message} (see {self.prog} --help)")


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    top = _Parser(prog="python -m experiments", description=__doc__, allow_abbrev=False)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    made = {name: commands.add_parser(name, help=text, description=text) for name, text in COMMANDS.items()}
    run = made["run"]
    run.add_argument("overrides", nargs="*", metavar="OPTION=VALUE", help="such as evictor=lru,sieve seeds=8")
    run.add_argument("--dry-run", action="store_true", help="list the runs and stop")
    made["list"].add_argument("what", nargs="?", default="all", help="one of the kinds listed")
    made["list"].add_argument(
        "policy_path", nargs="?", metavar="policy_path=DIR", help="your own policies too"
    )
    made["list"].add_argument(
        "--store", type=Path, default=Path("runs"), help="the run store (default: runs)"
    )
    report = made["report"]
    report.add_argument("experiment", nargs="?", default="latest", help="a folder, a name, or latest")
    plot = made["plot"]
    plot.add_argument("experiment", nargs="?", default="latest", help="a folder, a name, or latest")
    plot.add_argument("--figure", required=True, help="name of the figure")
    plot.add_argument("--out", type=Path, required=True, help="file to write: .svg, .pdf or .png")
    trace = made["trace"]
    trace.add_argument("run", help="a run's folder or the beginning of its id")
    trace.add_argument("--out", type=Path, help="file to write (default: <run id>.json.gz)")
    for command in (report, plot, trace):
        command.add_argument("--store", type=Path, default=Path("runs"), help="the run store (default: runs)")
    bench = made["bench"]
    bench.add_argument(
        "what",
        choices=["sim", "policies", "speculation", "kernels"],
        help="the simulator, what decisions cost, runs that draft, or kernels on a CPU",
    )
    bench.add_argument("overrides", nargs="*", metavar="OPTION=VALUE", help="as for run; one arm, one seed")
    bench.add_argument("--workload", help="sim: a file or an embedded workload")
    bench.add_argument("--json", action="store_true", help="one JSON object instead of text")
    made["doctor"].add_argument(
        "--store", type=Path, default=Path("runs"), help="the run store (default: runs)"
    )
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status: 0 done, 1 done in part, 2 wrong input, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words and not words[0].startswith("-") and words[0] not in COMMANDS:
            raise InputError(nearest(words[0], COMMANDS, what="command"))
        if words[:1] == ["fuzz"]:
            return int(importlib.import_module("experiments.fuzz").main(words[1:]))
        if words[:1] in (["reproduce"], ["waterfall"]):
            return int(importlib.import_module(f"experiments.{words[0]}").main(words[1:]))
        if words[:1] == ["train"]:
            # Before numpy is loaded: threads that wait for each other make small products slow and sums inexact.
            for library in ("OPENBLAS", "OMP", "MKL"):
                os.environ.setdefault(f"{library}_NUM_THREADS", "1")
            return int(importlib.import_module("experiments.train").main(words[1:]))
        return _dispatch(_parsed(words))
    except InputError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output left (`| head`): no error, but Python must not flush into it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parsed(words: list[str]) -> argparse.Namespace:
    arguments, rest = parser().parse_known_args(words)
    # argparse gives up on words that come after an option: `bench sim --workload F seeds=1`.
    stray = [w for w in rest if w.startswith("-") or not hasattr(arguments, "overrides")]
    if stray:
        raise InputError(f"{arguments.command}: unknown argument {stray[0]!r} (see --help)")
    if rest:
        arguments.overrides += rest
    return arguments


def _dispatch(a: argparse.Namespace) -> int:
    if a.command == "run":
        from experiments.run import run

        return run(a.overrides, dry_run=a.dry_run)
    if a.command == "list":
        from experiments.listing import show

        return show(a.what, a.policy_path, a.store)
    if a.command == "bench":
        if a.what == "kernels":
            from experiments import bench_kernels

            if a.workload is not None:
                raise InputError("bench kernels: leave out --workload")
            return bench_kernels.bench(a.overrides, as_json=a.json)
        if a.what == "policies":
            from experiments import bench_policies

            if a.workload is not None:
                raise InputError("bench policies: its cache is made up; leave out --workload")
            return bench_policies.bench(a.overrides, as_json=a.json)
        if a.what == "speculation":
            from experiments import bench_speculation

            if a.workload is not None:
                raise InputError("bench speculation: its workload is made up; leave out --workload")
            return bench_speculation.bench(a.overrides, as_json=a.json)
        if a.workload is None:
            raise InputError("bench sim: name what to simulate with --workload")
        from experiments.bench import bench

        return bench(a.workload, a.overrides, as_json=a.json)
    if a.command == "doctor":
        from experiments.doctor import doctor

        return doctor(a.store)
    from experiments import outputs

    if a.command == "report":
        return outputs.report(a.store, a.experiment)
    if a.command == "plot":
        return outputs.plot(a.store, a.experiment, a.figure, a.out)
    return outputs.trace(a.store, a.run, a.out)


if __name__ == "__main__":
    sys.exit(main())
