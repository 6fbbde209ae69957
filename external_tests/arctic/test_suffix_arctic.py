"""Drafter `suffix` against the library that vLLM calls for SuffixDecoding (`pip install arctic-inference`).

The published rule does not say which of two equally frequent tokens a path takes, and the library adds scores in single
precision: steps where that could matter are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from policies.api import RequestView
from policies.drafters.suffix import Suffix
from policies.laws import toy_host
from traces import draws

suffix_decoding = pytest.importorskip("arctic_inference.suffix_decoding")


def stream(seed: int, name: str, n: int, words: int) -> list[int]:
    out: list[int] = []
    while len(out) < n:
        bits = draws.bits(seed, name, len(out))
        if len(out) > 8 and bits % 3 == 0:
            start = (bits >> 8) % (len(out) - 4)
            out += out[start : start + 2 + (bits >> 20) % 12]
        else:
            out.append((bits >> 8) % words)
    return out[:n]


Scored = list[tuple[float, tuple[int, ...]]]


def paths(
    texts: Sequence[Sequence[int]], pattern: Sequence[int], depth: int, k: int, floor: float
) -> Scored | None:
    """Return (score, draft) for each length of match; None where a path comes to two equally frequent tokens."""
    counts: dict[tuple[int, ...], int] = {}
    for text in texts:
        for start in range(len(text)):
            for n in range(1, min(depth, len(text) - start) + 1):
                word = tuple(text[start : start + n])
                counts[word] = counts.get(word, 0) + 1
    alphabet = {w for text in texts for w in text}
    pattern = pattern[-depth:]
    out: Scored = []
    for m in range(1, len(pattern)):
        string = tuple(pattern[-m:])
        if string not in counts:
            break
        product, score = 1.0, 0.0
        while len(string) - m < min(k, m) and len(string) < depth:
            ranked = sorted((counts.get((*string, w), 0) for w in alphabet), reverse=True)
            if not ranked[0]:
                break
            if len(ranked) > 1 and ranked[0] == ranked[1]:
                return None
            product *= ranked[0] / counts[string]
            if product < floor:
                break
            score += product
            string = max(((*string, w) for w in alphabet), key=lambda s: counts.get(s, 0))
        out.append((score, string[m:]))
    return out


def decided(trees: Sequence[Sequence[Sequence[int]]], pattern: Sequence[int], depth: int, k: int) -> bool:
    """Whether one draft has the best score, clearer than the library's single precision could blur."""
    scored: Scored = []
    for texts in trees:
        found = paths(texts, pattern, depth, k, 0.1)
        if found is None:
            return False
        scored += found
    best = max((score for score, _ in scored), default=0.0)
    return len({draft for score, draft in scored if score > best - 1e-5}) <= 1


@pytest.mark.parametrize("seed", range(6))
def test_suffix_drafts_what_the_library_drafts(seed: int) -> None:
    depth, k, cached = 10, 7, 4
    drafter = Suffix(longest=k, depth=depth, cached=cached)
    state = drafter.new_state(toy_host())
    theirs = suffix_decoding.SuffixDecodingCache(max_tree_depth=depth, max_cached_requests=cached)
    compared = drafted = 0
    answers: dict[int, list[int]] = {}
    prompts: dict[int, list[int]] = {}
    for number in range(9):
        prompts[number] = stream(seed, f"prompt {number % 2}", 30, 3)
        answers[number] = []
        drafter.begin(state, RequestView(number, 0, 0, 0, 0, 0), np.array(prompts[number], dtype=np.uint32))
        theirs.start_request(number, prompts[number])
        for time in range(20):
            for r in (number - 1, number):
                if r < 0:
                    continue
                text = stream(seed, f"answer {r % 3}", 80, 3)
                at = len(answers[r])
                new = text[at : at + 1 + draws.bits(seed, "n", r, time) % 2]
                answers[r] += new
                drafter.commit(state, r, np.array(new, dtype=np.uint32))
                theirs.add_active_response(r, new)
                whole = prompts[r] + answers[r]
                kept = [answers[c] for c in range(max(number - cached + 1, 0), number + 1)]
                if not decided(([whole], kept), whole, depth, k):
                    continue
                got = drafter.propose(state, r, k)
                want = theirs.speculate(r, whole[-depth:], max_spec_tokens=k)
                assert got.tokens.tolist() == list(want.token_ids)
                assert got.confidence.tolist() == pytest.approx(list(want.probs), rel=1e-5)
                compared += 1
                drafted += len(want.token_ids)
        if number:
            drafter.finish(state, number - 1)
            theirs.stop_request(number - 1)
    assert compared > 20
    assert drafted > 40
