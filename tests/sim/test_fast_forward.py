"""Law 6: fast-forward changes nothing but wall time."""

from __future__ import annotations

import pytest

from sim.worlds import random_world


@pytest.mark.parametrize("seed", range(150))
def test_fast_forward_writes_the_log_of_single_steps(seed: int) -> None:
    world = random_world(seed)
    fast_stats, fast = world.run(fast_forward=True)
    slow_stats, slow = world.run(fast_forward=False)
    for name in fast:
        a, b = fast[name], slow[name]
        if not a.equals(b):
            raise AssertionError(f"{name} differs:\n{_first_difference(a, b)}")
    assert fast_stats.steps == slow_stats.steps
    assert slow_stats.fast_forward_ratio == 0.0


def _first_difference(a, b):
    if a.num_rows != b.num_rows:
        return f"{a.num_rows} rows against {b.num_rows}\n{a.to_pandas().tail(3)}\n{b.to_pandas().tail(3)}"
    for i, (x, y) in enumerate(zip(a.to_pylist(), b.to_pylist(), strict=True)):
        if x != y:
            return f"row {i}:\n{x}\n{y}"
    return "dictionaries only"
