"""The fused query, key and value projection; its bias is added where the parts are summed (`rotary`)."""

from __future__ import annotations

from kernels.op import Tiles
from kernels.ops.linear import linear_op

# 40 column tiles leave most of 132 multiprocessors idle: the inner dimension is split.
TILES = {
    "guard": Tiles(block_m=16, block_n=64, block_k=64, split=4, warps=4, stages=4),
    "versions": Tiles(block_m=128, block_n=64, block_k=64, split=4, warps=4, stages=4),
}

QKV = linear_op("qkv", "hidden", "qkv", "H", TILES)
