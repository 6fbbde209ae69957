"""Compile every kernel of a step for GPUs that are not there, and say what it takes and whether the guard is first.

Programs are the whole grid's at batch 16, draft 8, context 4096; fit is how many one multiprocessor holds at once.
Registers and spilled bytes are a thread's, shared memory is a program's. A dash is a figure that could not be had
(cuobjdump comes with the triton package; without it the assembler's figures are absent). Controls are kernels that
are wrong on purpose: a control that is not flagged is a fault of the check. Exit status 1 where anything is at fault.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from traces.errors import InputError, nearest

if TYPE_CHECKING:
    from kernels.check.report import Row

_HEAD = "kernel       variant    sm programs  fit  regs  spill  shared  async  products"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check`."""
    parser.add_argument(
        "--arch", default="90,80", metavar="SM,...", help="compute capabilities times ten (90,80)"
    )
    parser.add_argument("--op", default="", metavar="NAME,...", help="only these kernels (all)")
    parser.add_argument(
        "--overlap", action="store_true", help="also the kernels whose launches overlap (sm_90 only)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Compile and judge; raises InputError for an unknown architecture or kernel."""
    import triton

    from kernels.check.compiled import ARCHITECTURES
    from kernels.check.controls import GOOD
    from kernels.check.report import check, check_controls, names

    allowed = [str(arch) for arch in ARCHITECTURES]
    archs = []
    for given in args.arch.split(","):
        if given not in allowed:
            raise InputError(f"--arch: {nearest(given, allowed, what='architecture')}")
        archs.append(int(given))
    wanted = [name for name in args.op.split(",") if name]
    for name in wanted:
        if name not in names():
            raise InputError(f"--op: {nearest(name, names(), what='kernel')}")
    rows = []
    if not args.json:
        print(f"triton {triton.__version__}\n{_HEAD}", flush=True)
    for row in check(archs, wanted, args.overlap):
        rows.append(row)
        if not args.json:
            print(_line(row), flush=True)
    controls = {arch: check_controls(arch) for arch in archs}
    missed = [
        f"control {name} sm_{arch}: " + ("not flagged" if fault is None else fault)
        for arch, found in controls.items()
        for name, fault in found.items()
        if (name in GOOD) != (fault is None)
    ]
    if args.json:
        print(json.dumps(_document(triton.__version__, rows, controls), indent=1))
    else:
        for arch, found in controls.items():
            flagged = sum(fault is not None for fault in found.values())
            print(f"controls sm_{arch}: {flagged} of {len(found) - len(GOOD)} wrong kernels flagged")
        faults = [f"{r.op} {r.variant} sm_{r.arch}: {fault}" for r in rows for fault in r.faults]
        print("\n".join(faults + missed) or f"{len(rows)} kernels, no fault")
    return 1 if missed or any(row.faults for row in rows) else 0


def _line(row: Row) -> str:
    def figure(value: int | None) -> str:
        return "-" if value is None else str(value)

    products = f"{row.wgmma} wgmma" if row.wgmma else f"{row.mma} mma" if row.mma else ""
    figures = (
        f"{row.op:12s} {row.variant:9s} {row.arch:3d}",
        f"{figure(row.programs):>8s} {figure(row.resident):>4s}",
        f"{figure(row.registers):>5s} {figure(row.spill_bytes):>6s} {row.shared_bytes:7d}",
        f"{row.async_copies:6d} {products:>9s}",
    )
    return " ".join(figures) + ("  FAULT" if row.faults else "")


def _document(version: str, rows: list[Row], controls: dict[int, dict[str, str | None]]) -> dict[str, Any]:
    return {
        "triton": version,
        "kernels": [row.to_dict() for row in rows],
        "controls": {str(arch): found for arch, found in controls.items()},
    }
