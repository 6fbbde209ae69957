"""Time a decode step under every graph strategy, on a GPU; rows for `python -m calibration kernels`.

Rows are appended to FILE as they are measured; run again, it goes on where it stopped. Exit status 1 where the time
budget ended first. --dry-run walks the same points on made-up times and labels them so.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench`."""
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="rows, one JSON object a line"
    )
    parser.add_argument("--layers", type=int, default=36, metavar="N", help="layers of the step (36)")
    parser.add_argument("--batch", type=int, default=16, metavar="N", help="largest batch (16)")
    parser.add_argument("--draft", type=int, default=8, metavar="N", help="most new tokens a sequence (8)")
    parser.add_argument(
        "--contexts", default="512,2048", metavar="N,N", help="KV tokens a sequence holds (512,2048)"
    )
    parser.add_argument("--repeats", type=int, default=60, metavar="N", help="replays a point (60)")
    parser.add_argument(
        "--budget-s", type=float, default=400.0, metavar="S", help="stop after this long (400)"
    )
    parser.add_argument("--seed", type=int, default=42, metavar="N", help="of weights and inputs (42)")
    parser.add_argument("--dry-run", action="store_true", help="made-up times, no GPU")


def run(args: argparse.Namespace) -> int:
    """Measure; raises InputError without a GPU and for a file of another setup."""
    from kernels.bench.machine import Gpu, Machine, MadeUp
    from kernels.bench.measure import measure
    from kernels.bench.points import points, strategies
    from kernels.bench.rows import RowFile
    from kernels.shapes import QWEN25_3B, Bounds
    from policies.laws import toy_host
    from traces.errors import InputError

    contexts = tuple(int(c) for c in args.contexts.split(",") if c.strip().isdecimal())
    if not contexts or any(getattr(args, n) < 1 for n in ("batch", "draft", "layers", "repeats")):
        raise InputError(
            "bench: --contexts, --batch, --draft, --layers and --repeats are whole numbers above 0"
        )
    shape = replace(QWEN25_3B, layers=args.layers)
    bounds = Bounds(args.batch, args.draft, max(contexts) + args.draft)
    host = replace(toy_host(), max_num_seqs=args.batch)
    machine: Machine = MadeUp(host) if args.dry_run else Gpu(shape, bounds, host, args.seed)
    about = {
        **machine.about(), "model": shape.name, "layers": shape.layers, "batch": args.batch, "draft": args.draft,
        "contexts": list(contexts), "seed": args.seed,
    }  # fmt: skip
    file = RowFile(args.out, about)
    end = monotonic() + args.budget_s
    whole = measure(
        machine, file, strategies(args.draft), points(args.batch, args.draft, contexts), repeats=args.repeats,
        left_s=lambda: end - monotonic(), say=lambda line: print(line, file=sys.stderr, flush=True),
    )  # fmt: skip
    print(
        f"{args.out}: {len(file.rows) - 1} rows{'' if whole else '; the time budget ended first, run again'}"
    )
    return 0 if whole else 1
