"""The runs behind the card of PolyGraph, as words of the command line."""

from __future__ import annotations

from experiments.cards.polygraph.law import affine_law
from experiments.cards.study import Study

_BASE, _SLOPE = affine_law()
LAW = (f"step_law.base_us={_BASE:.1f}", f"step_law.slope_us={_SLOPE:.2f}")
# Under the law a request takes ten times as long as on the H200 of the experiment.
LAW_RATE = "load.rate_per_s=3"
_QUICK = ("seeds=[42,1234]", "load.workflows=100")

STUDIES: dict[str, Study] = {
    "table_law": Study(("experiment=polygraph", *LAW, LAW_RATE), _QUICK),
    "table_h200": Study(("experiment=polygraph",), _QUICK),
    "fixed_law": Study(("experiment=polygraph", "+sweep=polygraph_fixed_d", *LAW, LAW_RATE), _QUICK),
    "fixed_h200": Study(("experiment=polygraph", "+sweep=polygraph_fixed_d"), _QUICK),
    "buckets": Study(("experiment=polygraph", "+sweep=polygraph_buckets"), _QUICK),
    "load": Study(
        ("experiment=polygraph", "+sweep=polygraph_load", *LAW),
        (*_QUICK, "load.rate_per_s=1,3", "drafter=scheduled"),
    ),
}
