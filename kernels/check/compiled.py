"""One kernel compiled for a GPU that is not there: its PTX, and what the assembler says it takes."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

from kernels import interpreter
from kernels.op import Launch, Op, StepConfig
from traces.errors import InputError

ARCHITECTURES = (90, 80)
_TYPES = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32"}


@dataclass(frozen=True)
class Compiled:
    """A kernel's code and resources.

    registers      a thread; None where the assembler's tools are not installed
    spill_bytes    local memory a thread; None likewise
    shared_bytes   shared memory a program
    warps          of a program
    """

    ptx: str
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int
    warps: int = 4


def tool(name: str) -> Path | None:
    """Return the path of a CUDA binary tool that comes with Triton, None where it does not."""
    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    return path if path.exists() else None


def compile_op(op: Op, config: StepConfig, arch: int) -> Compiled:
    """Compile an op's kernel as `config` launches it."""
    return compile_launch(op, config, op.plan(config, config.bounds), arch)


def compile_launch(op: Op, config: StepConfig, launch: Launch, arch: int) -> Compiled:
    """Compile a launch of the op, pointers aligned to 16 bytes as torch gives them."""
    signature = {name: _TYPES[spec.dtype] for name, spec in op.table(config).items()}
    return compile_kernel(launch.kernel, signature, launch.constants, arch, launch.options)


def compile_kernel(
    kernel: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    arch: int,
    options: dict[str, Any],
) -> Compiled:
    """Compile a kernel for compute capability arch/10; raises InputError where nothing can be compiled."""
    if interpreter.wanted():
        raise InputError("TRITON_INTERPRET is set: kernels are interpreted, none is compiled; unset it")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(
        kernel,
        dict(signature) | dict.fromkeys(constants, "constexpr"),
        dict(constants),
        {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*"},
    )
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    registers, spills = resources(made.asm["cubin"])
    return Compiled(made.asm["ptx"], registers, spills, made.metadata.shared, made.metadata.num_warps)


def resources(cubin: bytes) -> tuple[int | None, int | None]:
    """Return (registers, bytes of local memory) a thread, (None, None) where `cuobjdump` is not installed."""
    cuobjdump = tool("cuobjdump")
    if cuobjdump is None:
        return None, None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run(
            [cuobjdump, "-res-usage", file.name], capture_output=True, text=True, check=True
        )
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", said.stdout)
    if found is None:
        return None, None
    return int(found[1]), int(found[2]) + int(found[3])
