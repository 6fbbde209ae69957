"""How deep a stage's known dataflow is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traces.dataflow import depths
from traces.rendering import path_of
from traces.synthetic_branches import random_branches


def test_depth_is_the_longest_chain_and_ends_where_a_decision_hides_the_rest() -> None:
    w = random_branches(12, seed=4)
    assert w.branches is not None
    path, got = path_of(w.branches), depths(w)
    ptr, parents = w.parent_ptr.tolist(), w.parent_idx.tolist()
    children: dict[int, list[int]] = {}
    for s in range(w.n_stages):
        for p in parents[ptr[s] : ptr[s + 1]]:
            children.setdefault(p, []).append(s)

    def longest(s: int) -> int:
        known = [c for c in children.get(s, ()) if path[c] == -1 or path[c] == path[s]]
        return max((1 + longest(c) for c in known), default=0)

    assert got == [longest(s) for s in range(w.n_stages)]
    everything = depths(replace(w, branches=None))
    assert np.all(np.array(everything) >= np.array(got))
    assert everything != got
