"""`python -m calibration kernels`: rows of the kernel benchmark in, a profile and a table against the floors out."""

from __future__ import annotations

import argparse
from pathlib import Path

from calibration.gpus import gpu
from calibration.models import model
from traces.errors import InputError


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("kernels", help="fit a profile to the rows of python -m kernels bench")
    parser.add_argument("rows", type=Path, metavar="ROWS")
    parser.add_argument("--gpu", required=True, help="a GPU of the datasheets, such as H200")
    parser.add_argument("--variant", default="versions", choices=("versions", "guard"), help="matrix kernels")
    parser.add_argument("--out", type=Path, required=True, help="the profile's file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Fit, write the profile whole, and print the table."""
    from calibration.kernel_profile import fit, profile, table
    from kernels.bench.rows import read_rows

    g = gpu(args.gpu)
    rows = read_rows(args.rows)
    if not rows:
        raise InputError(f"{args.rows}: no rows")
    command = f"python -m calibration kernels ROWS --gpu {g.key} --variant {args.variant}"
    made = profile(rows, args.variant, g.key, command)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    aside = args.out.with_name(args.out.name + ".part")
    aside.write_text(made.to_json(), encoding="utf-8")
    aside.replace(args.out)
    found = fit(rows, args.variant)
    about = rows[0]
    print(f"{about['device']}; {about['model']}, {about['layers']} layers; kernels: {args.variant}")
    if about["synthetic"]:
        print("these times are made up: they show the chain, not a GPU")
    print("\n".join(table(rows, args.variant, model(str(about["model"])).shard(1), g)))
    step = f"a step: {found.base_us:.0f} us + {found.slope_us:.2f} us a token"
    print(
        f"{step}; {1000 * found.kv_us_per_token:.2f} ns a KV token; shortest eager step {found.eager_us:.0f} us"
    )
    guard = (
        f"plan update {found.update_us:.2f} us; guard {1000 * found.guard_us_per_token:.0f} ns an idle token"
    )
    print(f"{guard}; a graph {found.build_ms:.1f} ms, {found.graph_bytes / (1 << 20):.1f} MiB")
    print("mean error: " + ", ".join(f"{k} {v:.2f} %" for k, v in found.errors_percent.items()))
    print(f"profile: {args.out}")
