"""`python -m experiments train`: fit a predictor on recorded workflows, compare predictors, measure their cost.

    python -m experiments train predictor=graphsage workload=hover --out graphsage.safetensors --held-out rest.workload
    python -m experiments train predictor=all workload=hover --table --json table.json

A part of the workflows (`held_out`, drawn by `seed` and the workflow's name) is never learned from: evaluate on
`--held-out FILE`, which holds them and nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

from policies._options import coerce
from policies.training import fitting, modelfile, sequences
from policies.training.fitting import FitConfig
from traces.errors import InputError, nearest
from traces.schema import Workload


@dataclass(frozen=True)
class TrainOptions:
    """The words of the command.

    predictor    a trainable predictor, several with commas, or all (with --table)
    workload     an embedded workload or a file
    seed         of the split and of the fit; --table: the first seed
    held_out     share of the workflows that is not learned from
    workflows    learn from this many only; null: all that are not held out
    sizes        --table: training sizes
    seeds        --table: splits, each with a fit of its own
    fit          the fit's options, by their own names (epochs=60)
    """

    predictor: str = "all"
    workload: str = ""
    seed: int = 0
    held_out: float = 0.3
    workflows: int | None = None
    sizes: tuple[int, ...] = (25, 50, 100, 200, 500, 1000)
    seeds: int = 5
    fit: FitConfig = field(default_factory=FitConfig)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"train: {message} (see python -m experiments train --help)")


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit status. Raises InputError for what a user can mend."""
    parser = _Parser(
        prog="python -m experiments train", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("words", nargs="*", metavar="OPTION=VALUE", help=f"one of: {', '.join(_kinds())}")
    parser.add_argument(
        "--out", type=Path, help=f"model to write: NAME{modelfile.SUFFIX}, and NAME.json beside it"
    )
    parser.add_argument(
        "--held-out", type=Path, help="workload file to write: the workflows not learned from"
    )
    parser.add_argument(
        "--measure", action="store_true", help="time inference, and note it in the model's card"
    )
    parser.add_argument(
        "--table", action="store_true", help="accuracy on held-out workflows by training size"
    )
    parser.add_argument("--json", type=Path, help="--table: file to write the numbers to")
    arguments = parser.parse_intermixed_args(list(words))
    options = read_options(arguments.words)
    if arguments.table:
        if arguments.out or arguments.held_out or arguments.measure:
            raise InputError(
                "train: --table fits many models and keeps none; leave out --out, --held-out, --measure"
            )
        from experiments import train_table

        return train_table.table(options, open_named(options.workload), arguments.json)
    if arguments.json:
        raise InputError("train: --json belongs to --table; a fit writes its card beside --out")
    return _fit(options, arguments.out, arguments.held_out, arguments.measure)


def read_options(words: Sequence[str]) -> TrainOptions:
    """Return the options that the words set; InputError with the nearest name for an unknown one."""
    kinds = _kinds()
    given: dict[str, Any] = {}
    fit: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise InputError(f"train: {word!r}: expected OPTION=VALUE, such as predictor=graphsage")
        if name not in kinds:
            raise InputError(nearest(name, kinds, what="option of train"))
        if name == "sizes":
            given[name] = tuple(coerce(part, int, "sizes") for part in text.split(","))
            continue
        value = coerce(text, kinds[name], name)
        (fit if name in _fit_names() else given)[name] = value
    options = replace(TrainOptions(), **given)
    for name, low, value in (
        ("seeds", 1, options.seeds), ("sizes", 1, min(options.sizes)), ("workflows", 1, options.workflows or 1),
    ):  # fmt: skip
        if value < low:
            raise InputError(f"train: {name}={value}, expected at least {low}")
    if not options.workload:
        raise InputError("train: name what to learn from, such as workload=hover")
    return replace(options, fit=FitConfig(seed=options.seed, **fit))


def open_named(name: str) -> Workload:
    """Return an embedded workload or the workload of a file."""
    from experiments.inputs import WorkloadRef, open_workload

    return open_workload(WorkloadRef(name))


def _fit(options: TrainOptions, out: Path | None, rest: Path | None, measure: bool) -> int:
    fitting.needs_torch(options.predictor)  # refuses an unknown name before anything is read
    if out is None:
        raise InputError(
            f"train: say where the model goes, such as --out {options.predictor}{modelfile.SUFFIX}"
        )
    modelfile.paths(out)
    if rest is not None and rest.suffix != ".workload":
        raise InputError(f"train: --held-out {rest}: expected a file name that ends in .workload")
    workload = open_named(options.workload)
    recorded = sequences.of_workload(workload)
    learn, test = sequences.split(recorded.names, options.held_out, options.seed)
    learn = learn[: options.workflows]
    about = {
        "workload": workload.name,
        "workload_digest": workload.digest(),
        "seed": options.seed,
        "held_out": options.held_out,
        "text": "prompt length and hashed n-grams of earlier outputs; no hidden states",
    }
    digest = fitting.train(options.predictor, recorded.take(learn), options.fit, out, about)
    print(
        f"{options.predictor}: learned from {len(learn)} workflows of {workload.name}, {len(test)} held out"
    )
    from experiments.train_table import accuracy, served

    steps = accuracy(served(options.predictor, out, recorded.agents), recorded.take(test))
    print("top-1 on held-out workflows: " + ", ".join(f"step {k} {v:.3f}" for k, v in enumerate(steps, 1)))
    if measure:
        from experiments.train_measure import measure as timed

        timed(options.predictor, out, recorded.take(test))
    if rest is not None:
        _write_held_out(workload, {recorded.names[i] for i in test}, rest)
    print(f"model: {out} (tensors {digest})")
    return 0


def _write_held_out(workload: Workload, names: set[str], path: Path) -> None:
    from traces import resample, store

    rows = [i for i, n in enumerate(workload.workflow_names) if n in names]
    store.save(resample.subset(workload, rows), path)
    print(f"held out: {path} ({len(rows)} workflows)")


def _kinds() -> dict[str, Any]:
    kinds = get_type_hints(TrainOptions)
    del kinds["fit"]
    fit = get_type_hints(FitConfig)
    return {**kinds, **{name: fit[name] for name in _fit_names()}}


def _fit_names() -> list[str]:
    return [f.name for f in fields(FitConfig) if f.name != "seed"]
