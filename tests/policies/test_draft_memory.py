"""What is forgotten leaves no trace, memory stays within its bound, and nothing needs a compiler."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from dataclasses import replace

import draft_reference as reference
import numpy as np
import pytest

from policies import _draft_pool
from policies._draft_fast import FAST
from policies._draft_pool import Run, SuffixPool
from policies._draft_reader import Reader
from policies.api import RequestView
from policies.drafters.structured import Structured
from policies.drafters.suffix import Suffix
from policies.laws import toy_host
from traces import draws


def ids(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, dtype=np.uint32)


@pytest.mark.parametrize("fast", [False, True] if FAST else [False])
def test_a_forgotten_sequence_counts_no_more_before_and_after_a_rebuild(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_draft_pool, "LEAST_DEAD_TOKENS", 40)
    pool, reader = SuffixPool(6, fast=fast), Reader(5, fast=fast)
    history = pool.history()
    kept: deque[tuple[Run, list[int]]] = deque()
    largest = 0
    for number in range(40):
        run, words = pool.sequence(history), []
        kept.append((run, words))
        for step in range(6):
            words += [draws.bits(1, "word", number, step, i) % 3 for i in range(2)]
            pool.append(run, ids(words[-2:]))
        pool.close(run, forgettable=True)
        if len(kept) > 4:
            pool.forget(kept.popleft()[0])
        texts = [w for _, w in kept]
        tail = [draws.bits(2, "tail", number, i) % 3 for i in range(6)]
        score = reader.frequent(pool, history, ids(tail[1:]), 6, 5, 1.0, 0.0, 0.1)
        draft, products, best = reference.suffix_path(texts, tail, 6, 5, 1.0, 0.1)
        assert reader.draft().tokens.tolist() == draft
        assert score == pytest.approx(float(best))
        assert reader.draft().confidence.tolist() == pytest.approx([float(p) for p in products])
        largest = max(largest, pool.tokens)
    assert largest < 150  # of 480 that came


def test_an_answer_that_leaves_the_cache_while_its_request_runs_is_drafted_from_no_more() -> None:
    drafter = Suffix(cached=1, history="generated")
    state = drafter.new_state(toy_host())
    nothing = ids([])
    for number in (1, 2):
        drafter.begin(state, RequestView(number, 0, 0, 0, 0, 0), nothing)
        drafter.commit(state, number, ids([10 * number + i for i in range(8)]))
    drafter.commit(state, 1, ids([77, 78, 79]))  # its own tree still grows
    drafter.begin(state, RequestView(3, 0, 0, 0, 0, 0), nothing)
    drafter.commit(state, 3, ids([10, 11]))
    assert drafter.propose(state, 3, 8).tokens.tolist() == []
    for number in (1, 2, 3):
        drafter.finish(state, number)
    assert len(state.cached) == 1


def test_the_history_of_the_structured_drafter_stays_within_its_bound() -> None:
    drafter = Structured(history_tokens=600)
    state = drafter.new_state(toy_host())
    sizes, held = [], []
    for number in range(300):
        query = number // 3
        drafter.begin(state, RequestView(number, 0, 0, 0, 0, 0, query=query), ids([]))
        tokens = [draws.bits(3, "t", query, i) % 50 for i in range(40)]
        for start in range(0, 40, 10):
            drafter.commit(state, number, ids(tokens[start : start + 10]))
        drafter.finish(state, number)
        sizes.append(state.pool.tokens)
        held.append(state.pool.memory_bytes)
    assert max(sizes) <= 600 + 40
    assert max(held[150:]) <= max(held[:150])
    assert len(state.caches) <= 600 // 40 + 1


def test_a_history_at_its_bound_still_drafts_from_what_is_new() -> None:
    drafter = Structured(history_tokens=100)
    state = drafter.new_state(toy_host())
    for number in range(8):
        drafter.begin(state, RequestView(number, 0, 0, 0, 0, 0, query=1), ids([]))
        text = [100 * number + i for i in range(30)]
        drafter.commit(state, number, ids(text))
        drafter.finish(state, number)
    drafter.begin(state, RequestView(9, 0, 0, 0, 0, 0, query=1), ids([]))
    drafter.commit(state, 9, ids([700, 701, 702]))
    assert drafter.propose(state, 9, 3).tokens.tolist() == [703, 704, 705]
    drafter.commit(state, 9, ids([9, 0, 1, 2]))
    assert drafter.propose(state, 9, 3).tokens.tolist() == []  # the oldest text is forgotten


def test_prompts_are_remembered_once() -> None:
    drafter = replace(Structured(), history="with_prompt")
    state = drafter.new_state(toy_host())
    prompt = list(range(400))
    for number in range(5):
        drafter.begin(state, RequestView(number, 0, 0, 0, 0, 0, query=1), ids(prompt))
        drafter.finish(state, number)
        prompt += range(1000 * (number + 1), 1000 * (number + 1) + 50)
    assert state.pool.tokens <= 400 + 4 * (50 + drafter.match_max)


def test_drafters_keep_their_laws_without_a_compiler() -> None:
    script = (
        "import sys; sys.modules['numba'] = None\n"
        "from policies._draft_fast import FAST\n"
        "from policies.laws import check\n"
        "from policies.registry import load\n"
        "assert not FAST\n"
        "for name in ('structured', 'suffix'): check(load('drafters', name), range(1))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
