"""The plain roofline that predictions are held against: datasheet rates, a hard maximum, nothing else."""

from __future__ import annotations

from functools import cache

from calibration.constants import Constants, Overhead
from calibration.form import price
from calibration.predict_models import shape
from calibration.predict_names import system
from policies.costs import Profile

# As the power grows the smooth maximum becomes the hard one; at 64 they differ by at most 1.1 %, where both are equal.
_HARD = 64.0


@cache
def roofline(model: str, system_name: str, precision: str, tp: int) -> Profile:
    """Return a profile of datasheet rates alone: no efficiency, no kernel overheads, no all-reduce, no engine."""
    ideal = Constants(1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, _HARD, "datasheet", reduce=0.0)
    nothing = Overhead(0.0, 0.0, "none")
    return price(
        shape(model).shard(tp), system(system_name), precision, ideal, nothing,
        timing="roofline", provenance={}, error={},
    )  # fmt: skip
