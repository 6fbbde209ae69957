"""Shapes small enough to interpret, in which no width is a multiple of its tile."""

import torch
from hypothesis import strategies as st

from kernels.op import StepConfig, Tiles
from kernels.plan import SLOTS, Plan, PlanLayout
from kernels.shapes import Bounds, DecodeShape

TINY = DecodeShape("tiny", 2, 40, 4, 2, 16, 56, 90)
BOUNDS = Bounds(batch=4, draft=5, context=38)
_MATRIX = Tiles(block_m=32, block_n=64, block_k=32, split=2)
TILES = {
    "qkv": _MATRIX,
    "output": _MATRIX,
    "down": _MATRIX,
    "gate_up": Tiles(block_m=32, block_n=32, block_k=32),
    "lm_head": Tiles(block_m=32, block_n=64, block_k=32),
    "attention": Tiles(block_m=16, block_n=16, split=2),
}
BASE_SLOTS = 8


def config(dtype: torch.dtype = torch.float32, **changes: object) -> StepConfig:
    fields = {"shape": TINY, "bounds": BOUNDS, "dtype": dtype, "page": 4, "tiles": TILES} | changes
    fields["pool"] = fields["bounds"].batch * 10 * 4 + BASE_SLOTS
    return StepConfig(**fields)


@st.composite
def cases(draw, dtype: torch.dtype) -> tuple[StepConfig, Plan, int]:
    """A configuration, a plan within its bounds and a seed."""
    ragged = draw(st.booleans())
    layout = PlanLayout(tuple(draw(st.permutations(SLOTS))))
    made = config(dtype, variant=draw(st.sampled_from(["guard", "versions"])), ragged=ragged, layout=layout)
    base = draw(st.sampled_from([0, BASE_SLOTS]))
    drafts = draw(st.lists(st.integers(1, BOUNDS.draft), min_size=1, max_size=BOUNDS.batch))
    if ragged:
        plan = Plan.ragged(TINY, drafts, base)
    else:
        plan = Plan.rectangular(TINY, len(drafts), drafts[0], base)
    return made, plan, draw(st.integers(0, 1 << 20))
