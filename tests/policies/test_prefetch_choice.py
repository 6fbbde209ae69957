"""Prefetchers take what is worth most at the next step, parents first, within the budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from policies.api import BatchShape, Forecast, Prefetcher
from policies.laws import toy_host
from policies.prefetchers.aggressive import Aggressive
from policies.prefetchers.conservative import Conservative
from traces import draws
from traces.errors import InputError

SHAPE = BatchShape(4, 1, 4, 0, 100)


@dataclass(eq=False)
class Run:
    id: int
    readers: tuple[tuple[int, int], ...]
    tokens: int = 16
    parent: Run | None = None
    identity: int = 0
    depth_tokens: int = 0
    created_ns: int = 0
    last_access_ns: int = 0


def state_of(policy: Prefetcher[Any], **forecasts: tuple[float, ...]) -> Any:
    state = policy.new_state(toy_host())
    for workflow, row in forecasts.items():
        policy.forecast(state, Forecast(int(workflow[1:]), 0, np.array([row], dtype=np.float32)))
    return state


def value(state: Any, run: Run) -> int:
    masks: dict[int, int] = {}
    for workflow, agent in run.readers:
        masks[workflow] = masks.get(workflow, 0) | 1 << agent
    return int(state.offered.value_of(masks))


def test_nodes_come_by_value_summed_over_workflows_and_without_value_stay() -> None:
    policy = Conservative()
    state = state_of(policy, w1=(0.6, 0.0, 0.0, 0.4), w2=(0.5, 0.0, 0.5, 0.0))
    runs = [Run(1, ((1, 0),)), Run(2, ((1, 0), (2, 0))), Run(3, ((1, 1),)), Run(4, ((9, 0),))]
    assert policy.choose(state, runs, 1000, SHAPE) == [1, 0]
    policy.workflow_finished(state, 1, 0)
    assert policy.choose(state, runs, 1000, SHAPE) == [1]


def test_only_the_next_step_counts() -> None:
    policy = Conservative()
    state = policy.new_state(toy_host())
    later = np.array([(0, 1, 0, 0), (1, 0, 0, 0)], dtype=np.float32)
    policy.forecast(state, Forecast(1, 0, later))
    assert policy.choose(state, [Run(1, ((1, 0),))], 1000, SHAPE) == []


def test_a_node_that_does_not_fit_is_skipped_with_all_below_it_or_ends_the_choice() -> None:
    for unfitting, expected in (("skip", [2]), ("stop", [])):
        policy = Conservative(unfitting=unfitting)  # type: ignore[arg-type]
        state = state_of(policy, w1=(0.5, 0.4, 0.1, 0.0))
        large = Run(1, ((1, 0), (1, 1)), tokens=64)
        runs = [large, Run(2, ((1, 0),), parent=large), Run(3, ((1, 1),))]
        assert policy.choose(state, runs, 32, SHAPE) == expected


@pytest.mark.parametrize("seed", range(20))
def test_every_node_taken_is_worth_at_least_what_was_ready_and_would_have_fitted(seed: int) -> None:
    policy = Conservative()
    state = state_of(policy, w0=(0.5, 0.2, 0.2, 0.1), w1=(0.1, 0.7, 0.1, 0.1), w2=(0.05, 0.05, 0.5, 0.4))
    runs: list[Run] = []
    for i in range(15):
        bits = draws.bits(seed, "run", i)
        parent = runs[bits % i] if i and bits >> 8 & 1 else None
        readers = {(bits >> 16 & 1, bits >> 17 & 1), ((bits >> 20) % 3, (bits >> 24) % 3)}
        if parent is not None:
            parent.readers = tuple(sorted({*parent.readers, *readers}))
        runs.append(Run(i, tuple(sorted(readers)), 16 * (1 + (bits >> 32) % 4), parent))
    budget = draws.bits(seed, "budget") % 600
    chosen = policy.choose(state, runs, budget, SHAPE)
    left, there = budget, set()
    for row in chosen:
        run = runs[row]
        assert run.parent is None or run.parent.id in there
        ready = [
            r
            for r in runs
            if r.id not in there and (r.parent is None or r.parent.id in there) and r.tokens <= left
        ]
        assert value(state, run) >= max(value(state, r) for r in ready)
        left -= run.tokens
        there.add(run.id)
    assert left >= 0


def test_agents_that_inherit_count_where_that_is_the_reading() -> None:
    run = Run(1, ((1, 0),))
    for policy, expected in (
        (Conservative(), []),
        (Conservative(access="inherit"), [0]),
        (Conservative(access="inherit", passes="a>b"), [0]),
        (Conservative(access="inherit", passes="c>b"), []),
    ):
        assert policy.choose(state_of(policy, w1=(0, 1, 0, 0)), [run], 100, SHAPE) == expected


def test_only_aggressive_prefetch_displaces_active_cache_up_to_rho() -> None:
    host = replace(toy_host(), capacity_tokens=1000)
    conservative, aggressive, each = Conservative(), Aggressive(rho=0.2), Aggressive(rho=0.2, limit="call")
    assert conservative.displaceable_tokens(conservative.new_state(host), 0) == 0
    assert [aggressive.displaceable_tokens(aggressive.new_state(host), n) for n in (0, 150, 900)] == [
        200,
        50,
        0,
    ]
    assert each.displaceable_tokens(each.new_state(host), 900) == 200


@pytest.mark.parametrize(
    ("cls", "options", "words"),
    [
        (Aggressive, {"rho": 2.0}, "rho=2"),
        (Conservative, {"passes": "learned"}, "passes=learned"),
        (Aggressive, {"passes": "learned"}, "passes=learned"),
    ],
)
def test_options_of_prefetchers_out_of_range_are_refused(
    cls: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        cls(**options)
