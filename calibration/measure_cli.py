"""The command `measure`: choose a backend, spend a budget, leave a folder; and `runs`, which judges piece G."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from calibration import catalog, plan
from calibration.measure import Backend, Budget, measure
from calibration.measure_run import predict_runs
from traces.errors import InputError, nearest

BACKENDS = ("torch", "vllm", "fake")


def add_parser(commands: Any) -> None:
    """Add `measure` and `runs` to the command line."""
    parser = commands.add_parser(
        "measure", help="measure steps, overhead, host link and graphs on this machine"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder; what it holds is not measured again")
    parser.add_argument("--plan", default="full", help="quick or full")
    parser.add_argument("--pieces", default=",".join(plan.PIECES), help="some of A,B,C,D,E,F,G")
    parser.add_argument("--backend", default="torch", help=", ".join(BACKENDS))
    parser.add_argument("--model", help="a known model's name (torch), a model folder or name (vllm)")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="torch: cpu is a dry run")
    parser.add_argument("--profile", help="fake: the profile whose prices are the truth")
    parser.add_argument("--noise", type=float, default=0.01, help="fake: deviation of a repetition's log")
    parser.add_argument("--drift", type=float, default=0.0, help="fake: relative change per hundred readings")
    parser.add_argument(
        "--budget-s", type=float, default=float("inf"), help="stop after so many seconds, keep the rest"
    )
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument(
        "--run-s", type=float, help="step time of each run of piece G; the plan's if not given"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.set_defaults(run=_measure)
    runs = commands.add_parser("runs", help="predict the runs of piece G, which no fit has seen")
    runs.add_argument("folder", type=Path, help="a folder that `measure` wrote")
    runs.add_argument("--profile", required=True, help="a profile's name or file")
    runs.set_defaults(run=_runs)


def _measure(args: argparse.Namespace) -> None:
    pieces = [p for p in args.pieces.upper().replace(" ", "").split(",") if p]
    plan.points(args.plan, pieces)  # refuses unknown names before anything is made
    for name, low in (("repetitions", 3), ("budget_s", 0), ("run_s", 0)):
        value = getattr(args, name)
        if value is not None and not value >= low:
            raise InputError(f"--{name.replace('_', '-')} {value}: expected at least {low}")
    outcome = measure(
        _backend(args), args.out, plan=args.plan, pieces=pieces, repetitions=args.repetitions,
        budget=Budget(args.budget_s), seed=args.seed, run_s=args.run_s,
    )  # fmt: skip
    print(
        f"{outcome.measured} points measured, {outcome.there} were there, {len(outcome.refused)} cannot be measured "
        f"here, {outcome.left} left; rows: {args.out / 'rows.parquet'}"
    )


def _backend(args: argparse.Namespace) -> Backend:
    if args.backend == "fake":
        from calibration.measure_fake import FakeBackend

        if args.profile is None:
            raise InputError("--backend fake: needs --profile, the prices that are taken as true")
        return FakeBackend(catalog.open(args.profile), args.noise, args.drift, args.seed)
    if args.backend == "torch":
        from calibration import models
        from calibration.torch_step import TINY, TorchBackend

        if args.model is None and args.device == "cuda":
            raise InputError(f"--backend torch: needs --model, one of {', '.join(models.MODELS)}")
        shape = TINY if args.model in (None, TINY.name) else models.model(args.model)
        return TorchBackend(shape, args.device)
    if args.backend == "vllm":
        from calibration.vllm_step import VllmBackend

        if args.model is None:
            raise InputError("--backend vllm: needs --model, a model folder or name that vLLM can load")
        return VllmBackend(args.model)
    raise InputError(nearest(args.backend, BACKENDS, what="backend"))


def _runs(args: argparse.Namespace) -> None:
    print(json.dumps(predict_runs(catalog.open(args.profile), args.folder), indent=1, sort_keys=True))
