"""Belady's rule on recorded accesses without tree structure: no online policy hits more."""

from __future__ import annotations

import numpy as np
import pytest
from flat_cache import run_flat

from policies.registry import find, load, names
from traces.draws import uniform_array

ONLINE = [n for n in names("evictors") if not find("evictors", n).needs]


def recorded(seed: int, shape: str) -> list[int]:
    """Return 600 accesses: popular keys, a loop that LRU loses, or both in turn."""
    u = uniform_array(seed, "belady test", np.arange(600))
    popular = (40 * u**3).astype(int)
    loop = 100 + np.arange(600) % 14
    if shape == "popular":
        return popular.tolist()
    if shape == "loop":
        return loop.tolist()
    return np.where(np.arange(600) // 50 % 2 == 0, popular, loop).tolist()


@pytest.mark.parametrize("shape", ["popular", "loop", "mixed"])
@pytest.mark.parametrize("name", ONLINE)
def test_no_online_policy_hits_more_than_belady(name: str, shape: str) -> None:
    for seed in range(3):
        accesses = recorded(seed, shape)
        best = run_flat(load("evictors", "belady_leaf"), accesses, 10)[0]
        assert run_flat(load("evictors", name), accesses, 10)[0] <= best


def test_belady_hits_what_the_closed_form_of_a_loop_allows() -> None:
    # A loop over 14 keys in a cache of 10: after the first round 9 of every 13 accesses hit; LRU hits none.
    accesses = recorded(0, "loop")
    hits = run_flat(load("evictors", "belady_leaf"), accesses, 10)[0]
    assert hits == pytest.approx((600 - 14) * 9 / 13, abs=9)
    assert run_flat(load("evictors", "lru"), accesses, 10)[0] == 0
