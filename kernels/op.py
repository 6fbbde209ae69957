"""What an op is: a shape table, a float32 reference, and a plan that turns a configuration into one launch.

A launch takes pointers only; whatever else a kernel needs is a compile-time constant or a word of the plan. A host
scalar cannot be captured by mistake, because no kernel has a parameter for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kernels.plan import Plan, PlanLayout
from kernels.recording import taker
from kernels.shapes import Bounds, DecodeShape
from traces.errors import InputError, nearest

VARIANTS = ("guard", "versions")
Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Tiles:
    """How one kernel cuts its work.

    block_m   rows a tile (attention: rows times heads of a group); the largest of several bodies
    block_n   output columns a tile (attention: keys an iteration)
    block_k   numbers of the inner dimension an iteration
    split     parts of the inner dimension (attention: of the context), each a program of its own
    """

    block_m: int = 16
    block_n: int = 64
    block_k: int = 64
    split: int = 1
    warps: int = 4
    stages: int = 3


def same_tiles(tiles: Tiles) -> dict[str, Tiles]:
    """Return `tiles` for every variant: an op whose kernel is the same in all."""
    return dict.fromkeys(VARIANTS, tiles)


@dataclass(frozen=True)
class StepConfig:
    """All that a decode step is compiled for.

    bounds    what buffers are allocated for; a captured graph may cover less
    dtype     of weights, KV and activations; the residual stream and partial sums are float32
    variant   "guard": a grid over row tiles, inactive ones stop at the guard (the paper's);
              "versions": one program a column tile, which takes the body for the plan's M
    ragged    drafts of one step may differ in length; rows are found through the plan's offsets
    overlap   a kernel may start while the one before it ends; needs compute capability 9.0
    page      KV tokens a block
    pool      KV slots of a layer; 0: enough for every sequence at its bound
    tiles     op name -> tiles, where they differ from the op's own
    """

    shape: DecodeShape
    bounds: Bounds
    dtype: torch.dtype = torch.bfloat16
    variant: str = "versions"
    ragged: bool = False
    overlap: bool = False
    page: int = 16
    pool: int = 0
    layout: PlanLayout = field(default_factory=PlanLayout)
    tiles: Mapping[str, Tiles] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise InputError(nearest(self.variant, VARIANTS, what="kernel variant"))
        if self.page < 1 or self.page & (self.page - 1):
            raise InputError(f"page {self.page}; allowed: a power of two")

    @property
    def blocks(self) -> int:
        """KV blocks of one sequence at its bound: the width of the block tables."""
        return -(-self.bounds.context // self.page)

    @property
    def slots(self) -> int:
        """KV slots of a layer."""
        return self.pool or self.bounds.batch * self.blocks * self.page

    @property
    def precision(self) -> str:
        """Input precision of products: TF32 would round a float32 step."""
        return "ieee" if self.dtype == torch.float32 else "tf32"

    def tile(self, op: str, own: Mapping[str, Tiles]) -> Tiles:
        """Return the tiles of an op: those given, or its own for the variant.

        float32 halves the stages: numbers twice as wide must fit the same shared memory.
        """
        if op in self.tiles:
            return self.tiles[op]
        tiles = own[self.variant]
        return replace(tiles, stages=max(tiles.stages // 2, 1)) if self.dtype == torch.float32 else tiles


@dataclass(frozen=True)
class Spec:
    """One tensor of an op.

    shape   numbers a dimension
    role    "in", "out" or "inout"
    rows    the dimension that counts the step's rows, those past the plan's M are never written; None for none
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    role: str = "in"
    rows: int | None = None


@dataclass(frozen=True)
class Launch:
    """One kernel with its grid and constants: what capture fixes."""

    op: str
    kernel: Any
    grid: tuple[int, ...]
    constants: Mapping[str, Any]
    warps: int = 4
    stages: int = 3

    @property
    def options(self) -> dict[str, Any]:
        """Options of the compiler. Fused multiply-adds are asked for: Triton's default differs by version."""
        options = {"num_warps": self.warps, "num_stages": self.stages, "enable_fp_fusion": True}
        return options | ({"launch_pdl": True} if self.constants.get("OVERLAP") else {})

    def __call__(self, tensors: Tensors) -> None:
        """Launch on the current stream. Mutates the op's "out" and "inout" tensors, in active rows only."""
        if (recorder := taker()) is not None:
            recorder.take(self, tensors)
            return
        self.kernel[self.grid](**tensors, **self.constants, **self.options)


@dataclass(frozen=True)
class Op:
    """One step of the layer.

    table      config -> name -> tensor: the shape table, in the kernel's order
    plan       (config, captured bounds) -> launch; rare, and only the launch is hot
    reference  (config, plan, tensors as float32) -> what `result` returns, for the active rows
    result     (plan, tensors) -> the op's results in active rows
    """

    name: str
    table: Callable[[StepConfig], dict[str, Spec]]
    plan: Callable[[StepConfig, Bounds], Launch]
    reference: Callable[[StepConfig, Plan, Tensors], dict[str, torch.Tensor]]
    result: Callable[[Plan, Tensors], dict[str, torch.Tensor]]


def plan_spec(config: StepConfig) -> Spec:
    """Return the plan buffer's spec: 8 words, and the row offsets where drafts are ragged."""
    return Spec((8 + (config.bounds.batch + 1 if config.ragged else 0),), torch.int32)


def power_of_two(n: int) -> int:
    """Return the least power of two that is `n` or more.

    >>> power_of_two(1), power_of_two(48)
    (1, 64)
    """
    return 1 << (n - 1).bit_length()
