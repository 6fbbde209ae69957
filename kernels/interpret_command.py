"""Run every kernel once in Triton's interpreter, on shapes in which no width is a multiple of its tile.

Compares with float32 and says how long the interpreter took, so that a regression shows without a GPU. Exit status 1
where a kernel is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from time import perf_counter

from traces.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `interpret`."""
    parser.add_argument("--seed", type=int, default=42, metavar="N", help="of the inputs (42)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Interpret and judge; raises InputError where kernels were decorated for compiling already."""
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET", "0") in ("", "0"):
        raise InputError("interpret: triton was imported for compiling; run it in a process of its own")
    os.environ["TRITON_INTERPRET"] = "1"
    import torch
    import triton

    from kernels.op import StepConfig, Tiles
    from kernels.plan import Plan
    from kernels.program import ops
    from kernels.shapes import Bounds, DecodeShape
    from kernels.trial import try_op

    shape = DecodeShape("tiny", 1, 40, 4, 2, 16, 56, 90)
    matrix = Tiles(block_m=32, block_n=64, block_k=32, split=2)
    tiles = {
        "qkv": matrix, "output": matrix, "down": matrix, "gate_up": Tiles(32, 32, 32),
        "lm_head": Tiles(32, 64, 32), "attention": Tiles(16, 16, 64, 2),
    }  # fmt: skip
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        config = StepConfig(shape, Bounds(2, 3, 20), dtype=dtype, page=4, tiles=tiles)
        plan = Plan.rectangular(shape, 2, 2)
        for name, op in ops(config).items():
            began = perf_counter()
            verdict = try_op(op, config, plan, args.seed)
            rows.append(
                {
                    "kernel": name, "dtype": str(dtype).removeprefix("torch."), "error": verdict.error,
                    "ok": verdict.passes(dtype), "ms": round(1000 * (perf_counter() - began), 1),
                }
            )  # fmt: skip
    if args.json:
        print(json.dumps({"triton": triton.__version__, "kernels": rows}, indent=1))
    else:
        for r in rows:
            said = "ok" if r["ok"] else "WRONG"
            print(f"{r['kernel']:12s} {r['dtype']:9s} {r['error']:9.2e} {r['ms']:8.1f} ms  {said}")
    return 0 if all(r["ok"] for r in rows) else 1
