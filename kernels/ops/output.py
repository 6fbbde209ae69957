"""The attention's output projection; `norm` adds its parts to the residual stream."""

from __future__ import annotations

from kernels.op import Tiles
from kernels.ops.linear import linear_op

# The plan has no word for heads x head_dim, so the inner extent is captured in both variants. 32 column tiles: split.
TILES = {
    "guard": Tiles(block_m=16, block_n=64, block_k=64, split=4, warps=4, stages=4),
    "versions": Tiles(block_m=128, block_n=64, block_k=64, split=4, warps=4, stages=4),
}

OUTPUT = linear_op("output", "attention", "hidden", None, TILES)
