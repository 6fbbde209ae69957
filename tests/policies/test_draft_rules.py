"""The drafters against brute force on random token streams; both forms of the automaton, compiled and plain."""

from __future__ import annotations

from dataclasses import replace

import draft_reference as reference
import numpy as np
import pytest

from policies._draft_fast import FAST
from policies._draft_pool import History, Run, SuffixPool
from policies._draft_reader import Reader
from policies.api import Draft, RequestView
from policies.drafters.ngram import NGram
from policies.drafters.structured import Structured
from policies.drafters.suffix import Suffix
from policies.laws import toy_host
from traces import draws


def stream(seed: int, name: str, n: int, words: int) -> list[int]:
    """A text with repeats: now and then it copies from itself."""
    out: list[int] = []
    while len(out) < n:
        bits = draws.bits(seed, name, len(out))
        if len(out) > 8 and bits % 3 == 0:
            start = (bits >> 8) % (len(out) - 4)
            out += out[start : start + 2 + (bits >> 20) % 12]
        else:
            out.append((bits >> 8) % words)
    return out[:n]


def ids(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, dtype=np.uint32)


def view(request: int, query: int = 0, agent: int = 0) -> RequestView:
    return RequestView(request, request, 0, agent, 0, 0, query=query)


@pytest.mark.parametrize("seed", range(12))
def test_ngram_is_the_earliest_place_of_the_longest_match(seed: int) -> None:
    n_min, n_max = 1 + seed % 3, 2 + seed % 4
    n_max = max(n_min, n_max)
    drafter = NGram(k=1 + seed % 5, n_min=n_min, n_max=n_max)
    text = stream(seed, "ngram", 150, 2 + seed % 4)
    state = drafter.new_state(toy_host())
    drafter.begin(state, view(7), ids(text[:40]))
    for end in range(40, len(text)):
        drafter.commit(state, 7, ids(text[end : end + 1]))
        got = drafter.propose(state, 7, 64).tokens.tolist()
        assert got == reference.ngram(text[: end + 1], n_min, n_max, drafter.k)


def same(draft: Draft, expected: tuple[list[int], int, int, int, list[float]]) -> None:
    tokens, matches, agreeing, agreed, shares = expected
    assert draft.tokens.tolist() == tokens
    assert (draft.matches, draft.agreeing, draft.consensus_tokens) == (matches, agreeing, agreed)
    assert draft.confidence.tolist() == pytest.approx(shares)


@pytest.mark.parametrize("fast", [False, True] if FAST else [False])
@pytest.mark.parametrize("seed", range(6))
def test_consensus_is_what_followed_the_matches_in_their_segments(seed: int, fast: bool) -> None:
    """Four segments of two histories grow at once; some close and others begin, and old ones are trimmed."""
    pool = SuffixPool(12, fast=fast)
    reader = Reader(6, fast=fast)
    histories = [pool.history(), pool.history()]
    said: dict[int, list[reference.Timed]] = {0: [], 1: []}
    writers: list[tuple[int, Run, reference.Timed, list[int]]] = []
    born: list[reference.Timed] = []
    for time in range(500):
        bits = draws.bits(seed, "step", time)
        if len(writers) < 4:
            h = bits % 2
            if histories[h].root < 0:
                histories[h] = pool.history()
            segment: reference.Timed = []
            said[h].append(segment)
            born.append(segment)
            text = stream(seed, f"text {time}", 200, 2 + bits % 3)
            writers.append((h, pool.sequence(histories[h]), segment, text))
        w = (bits >> 8) % len(writers)
        h, sequence, segment, text = writers[w]
        n = 1 + (bits >> 16) % 3
        new = text[len(segment) : len(segment) + n]
        pool.append(sequence, ids(new))
        segment += [(word, 3 * time + i) for i, word in enumerate(new)]
        limit = (bits >> 24) % 7
        tail = [word for word, _ in segment]
        draft = reader.consensus(pool, [sequence], 2, 6, limit)[0]
        expected = reference.consensus(said[h], tail, 2, 6, limit)
        same(draft, expected if limit else ([], 0, 0, 0, []))
        other = histories[1 - h]
        if other.root >= 0:
            reader.consensus_after(pool, other, ids(tail[-6:]), 2, 6)
            same(reader.draft(), reference.consensus(said[1 - h], tail[-6:], 2, 6, 6))
        if (bits >> 32) % 40 == 0:
            pool.close(writers.pop(w)[1])
        if time % 150 == 149:
            pool.trim(60)
            _trim(said, born, [segment for _, _, segment, _ in writers], 60)


def _trim(
    said: dict[int, list[reference.Timed]], born: list[reference.Timed], growing: list, tokens: int
) -> None:
    """Keep the newest segments, of `tokens` in all, and those that grow."""
    kept, total = {id(segment) for segment in growing}, 0
    for segment in reversed(born):
        total += len(segment)
        if total <= tokens:
            kept.add(id(segment))
    born[:] = [s for s in born if id(s) in kept]
    for part in said.values():
        part[:] = [s for s in part if id(s) in kept]


@pytest.mark.parametrize("seed", range(8))
def test_suffix_takes_the_best_scored_path_of_the_two_trees(seed: int) -> None:
    drafter = Suffix(longest=6, depth=8, factor=(1.0, 2.0, 0.5)[seed % 3], cached=(3, 0, 10_000)[seed % 3])
    state = drafter.new_state(toy_host())
    prompts, answers, order = {}, {}, []
    rule = (8, 6, drafter.factor, drafter.floor)
    for number in range(6):
        prompts[number] = stream(seed, f"prompt {number % 2}", 20, 4)
        answers[number] = []
        drafter.begin(state, view(number), ids(prompts[number]))
        order.append(number)
        if number >= 2:
            drafter.finish(state, number - 2)
        for time in range(25):
            for r in {max(number - 1, 0), number}:
                text = stream(seed, f"answer {r % 3}", 60, 4)
                new = text[len(answers[r]) : len(answers[r]) + 1 + draws.bits(seed, "n", r, time) % 2]
                answers[r] = answers[r] + new
                drafter.commit(state, r, ids(new))
                whole = prompts[r] + answers[r]
                mine = reference.suffix_path([whole], whole, *rule)
                cached = [answers[c] for c in order[-drafter.cached :]] if drafter.cached else []
                every = reference.suffix_path(cached, whole, *rule) if cached else ([], [], 0)
                draft, products, _ = every if every[2] > mine[2] else mine
                got = drafter.propose(state, r, 9)
                assert got.tokens.tolist() == draft
                assert got.confidence.tolist() == pytest.approx([float(x) for x in products])


def test_a_prompt_is_looked_up_where_history_is_with_prompt() -> None:
    prompt = ids([1, 2, 3, 4, 5, 6, 7])
    for history, expected in (("generated", []), ("with_prompt", [4, 5])):
        drafter = replace(Structured(), history=history)
        state = drafter.new_state(toy_host())
        drafter.begin(state, view(1), prompt)
        drafter.commit(state, 1, ids([9, 2, 3]))
        assert drafter.propose(state, 1, 2).tokens.tolist() == expected


def test_agents_queries_and_blocks_share_no_history_unless_told_to() -> None:
    def drafted(drafter: Structured, agent: int, query: int, block: int) -> list[int]:
        state = drafter.new_state(toy_host())
        drafter.begin(state, view(1), ids([]))
        drafter.commit(state, 1, ids([5]), np.array([1], dtype=np.int8))
        drafter.commit(state, 1, ids([1, 2, 3, 4]), np.full(4, 1, dtype=np.int8))
        drafter.finish(state, 1)
        drafter.begin(state, view(2, query, agent), ids([]))
        drafter.commit(state, 2, ids([5]), np.array([block], dtype=np.int8))
        drafter.commit(state, 2, ids([1, 2]), np.full(2, block, dtype=np.int8))
        return drafter.propose(state, 2, 8).tokens.tolist()

    assert drafted(Structured(), 0, 0, 1) == [3, 4]
    for other in ((1, 0, 1), (0, 1, 1), (0, 0, 2)):
        assert drafted(Structured(), *other) == []
    assert drafted(Structured(by_agent=False), 1, 0, 1) == [3, 4]
    assert drafted(Structured(by_query=False), 0, 1, 1) == [3, 4]
    assert drafted(Structured(by_block=False), 0, 0, 2) == [3, 4]


def test_a_history_in_a_pool_is_a_history() -> None:
    pool = SuffixPool(8)
    a = pool.history()
    assert isinstance(a, History)
    assert pool.tokens == 0


def test_a_draft_is_no_longer_than_the_factor_allows_what_matched() -> None:
    history = [*range(1, 40), 99]
    for factor, lengths in ((0.0, [20, 20, 20]), (1.0, [2, 5, 9]), (1.5, [3, 7, 13]), (0.4, [0, 2, 3])):
        for matched, length in zip((2, 5, 9), lengths, strict=True):
            drafter = Structured(longest=20, factor=factor)
            state = drafter.new_state(toy_host())
            drafter.begin(state, view(1), ids([]))
            drafter.commit(state, 1, ids(history))
            drafter.commit(state, 1, ids(history[3 : 3 + matched]))
            draft = drafter.propose(state, 1, 32)
            assert draft.tokens.tolist() == history[3 + matched :][:length]
            assert draft.consensus_tokens == length
