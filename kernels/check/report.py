"""Every kernel of a step compiled and judged, and the controls with them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from kernels.check import controls, ptx
from kernels.check.compiled import Compiled, compile_kernel, compile_launch, compile_op
from kernels.check.occupancy import MULTIPROCESSORS, resident
from kernels.configurations import configurations, distinct_kernels, overlapping
from kernels.op import Op, StepConfig
from kernels.ops.qkv import QKV
from kernels.shapes import QWEN25_3B, Bounds

# The kernels that carry a step's bytes: they must copy asynchronously, and in wide pieces.
STREAMS = ("qkv", "attention", "output", "gate_up", "down", "lm_head")
BOUNDS = Bounds(batch=16, draft=8, context=4096)
_CONTROL_OPTIONS = {"num_warps": 4, "num_stages": 2, "enable_fp_fusion": True}


@dataclass(frozen=True)
class Row:
    """One kernel on one architecture; None is a figure not to be had.

    programs   of the whole grid at the evaluated bounds, active or not; None for a control
    resident   programs that one multiprocessor holds at once
    faults     empty where the kernel is as it must be
    """

    op: str
    variant: str
    arch: int
    programs: int | None
    resident: int | None
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int
    async_copies: int
    wgmma: int
    mma: int
    faults: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self) | {"faults": list(self.faults)}


def names() -> list[str]:
    """Return the names of all kernels."""
    return sorted({name for _, _, name, _ in kernels_to_check()})


def kernels_to_check(overlap: bool = False) -> Iterator[tuple[str, StepConfig, str, Op]]:
    """Yield (variant, configuration, name, op) of every kernel at the evaluated dimensions.

    overlap   those whose launches overlap instead
    """
    if overlap:
        yield from distinct_kernels({"overlap": overlapping(QWEN25_3B, BOUNDS)})
    else:
        yield from distinct_kernels(configurations(QWEN25_3B, BOUNDS))


def check(archs: Sequence[int], only: Sequence[str] = (), overlap: bool = False) -> Iterator[Row]:
    """Compile and judge every kernel, or those named in `only`, for each architecture; rows come as they are done.

    overlap   also those whose launches overlap, for the architecture that has it
    """
    for arch in archs:
        kernels = [*kernels_to_check(), *(kernels_to_check(overlap=True) if overlap and arch >= 90 else ())]
        for variant, config, name, op in kernels:
            if not only or name in only:
                programs = math.prod(op.plan(config, config.bounds).grid)
                yield judge(name, variant, arch, compile_op(op, config, arch), programs)


def judge(name: str, variant: str, arch: int, made: Compiled, programs: int | None = None) -> Row:
    """Return the row of a compiled kernel, with all that is wrong with it."""
    counted = ptx.counts(made.ptx)
    faults = []
    if fault := ptx.guard_fault(made.ptx):
        faults.append(fault)
    if variant == "overlap" and (fault := ptx.overlap_fault(made.ptx)):
        faults.append(fault)
    if scalars := ptx.scalar_parameters(made.ptx):
        faults.append(f"{scalars} parameters are host scalars")
    if made.spill_bytes:
        faults.append(f"{made.spill_bytes} bytes of registers spilled a thread")
    most = MULTIPROCESSORS[arch].shared_bytes_program
    if made.shared_bytes > most:
        faults.append(f"{made.shared_bytes} bytes of shared memory, over {most}")
    held = None
    if made.registers is not None:
        held = resident(arch, made.registers, made.warps, made.shared_bytes)
    if name in STREAMS:
        if not counted["async_copies"]:
            faults.append("no asynchronous copies")
        if counted["two_byte_loads"]:
            faults.append(f"{counted['two_byte_loads']} two-byte loads")
        if not counted["wgmma" if arch == 90 else "mma"]:
            faults.append("no tensor core instructions of the architecture")
    return Row(
        name, variant, arch, programs, held, made.registers, made.spill_bytes, made.shared_bytes,
        counted["async_copies"], counted["wgmma"], counted["mma"], tuple(faults),
    )  # fmt: skip


def check_controls(arch: int) -> dict[str, str | None]:
    """Return control -> what the check found wrong with it (None: nothing)."""
    found = {}
    for name, kernel in (controls.GOOD | controls.BAD).items():
        signature = dict(controls.SIGNATURE)
        if name == "captured_scalar":
            signature["m"] = "i32"
        made = compile_kernel(kernel, signature, {"BLOCK": 64}, arch, _CONTROL_OPTIONS)
        row = judge(name, "control", arch, made)
        found[name] = "; ".join(row.faults) or None
    # A real kernel that is not told what its inner extent, which comes from the plan, is a multiple of.
    config = configurations(QWEN25_3B, BOUNDS)["guard"]
    launch = QKV.plan(config, config.bounds)
    untold = replace(launch, constants={**launch.constants, "K_ALIGN": 1})
    found[controls.UNALIGNED] = (
        "; ".join(judge("qkv", "control", arch, compile_launch(QKV, config, untold, arch)).faults) or None
    )
    return found
