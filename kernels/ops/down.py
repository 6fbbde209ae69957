"""The MLP's down projection; `norm` adds its parts to the residual stream."""

from __future__ import annotations

from kernels.op import Tiles
from kernels.ops.linear import linear_op

# 32 column tiles: split.
TILES = {
    "guard": Tiles(block_m=16, block_n=64, block_k=64, split=4, warps=4, stages=4),
    "versions": Tiles(block_m=128, block_n=64, block_k=64, split=4, warps=4, stages=4),
}

DOWN = linear_op("down", "intermediate", "hidden", "I", TILES)
