"""Compare every kernel, and the whole step, with float32 on a GPU, at the evaluated dimensions.

Exit status 1 where one differs by more than its tolerance, or touches what it must not.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `verify`."""
    parser.add_argument("--layers", type=int, default=36, metavar="N", help="layers of the step (36)")
    parser.add_argument("--batch", type=int, default=16, metavar="N", help="largest batch (16)")
    parser.add_argument("--draft", type=int, default=8, metavar="N", help="longest draft (8)")
    parser.add_argument(
        "--context", type=int, default=1024, metavar="N", help="KV tokens a sequence at most (1024)"
    )
    parser.add_argument("--seed", type=int, default=42, metavar="N", help="of weights and inputs (42)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Verify; raises InputError without a GPU."""
    from kernels.shapes import QWEN25_3B, Bounds
    from kernels.verify import need_gpu, verify

    device = need_gpu()
    shape = replace(QWEN25_3B, layers=args.layers)
    bounds = Bounds(args.batch, args.draft, args.context)
    findings = []
    for finding in verify(shape, bounds, args.seed, device):
        findings.append(finding)
        if not args.json:
            print(f"{finding.what:44s} {finding.error:9.2e}  {finding.fault or 'ok'}", flush=True)
    wrong = sum(bool(finding.fault) for finding in findings)
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        print(f"{len(findings)} comparisons, {wrong} at fault")
    return 1 if wrong else 0
