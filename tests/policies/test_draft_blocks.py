"""The automaton that finds semantic blocks, against a regular expression for every state of its stack."""

from __future__ import annotations

import re

import numpy as np
import pytest

from policies.api import HostInfo, RequestView
from policies.drafters.structured import Structured
from policies.laws import toy_host
from traces import draws
from traces.errors import InputError
from traces.structure import OUTSIDE, Blocks, Structure, parse_structure

PAPER = '[[("```python", "```"), ("<t>", "</t>")], [("\\\\[", "\\\\]"), ("$$", "$$"), ("$", "$")]]'
NESTING = '[[("(", ")")], [("[", "]"), ("<<", ">>")], [("<", ">"), ("|", "|"), ("<<!", "!")]]'


def blocks_by_regex(structure: Structure, text: str) -> list[int]:
    """Return the groups of the blocks that are open at the end of `text`, outermost first."""
    opening = "|".join(re.escape(o) for o in sorted(structure.opens, key=len, reverse=True))
    stack, at = [], 0
    while True:
        closing = re.escape(stack[-1].closing) if stack else "(?!)"
        found = re.compile(f"(?P<close>{closing})|(?P<open>{opening})").search(text, at)
        if found is None:
            return [pair.block for pair in stack]
        at = found.end()
        if found["close"] is not None:
            stack.pop()
        else:
            stack.append(structure.opens[found["open"]])


def random_text(seed: int, structure: Structure, parts: int) -> str:
    pieces = [x for p in structure.pairs for x in (p.opening, p.closing, p.opening[:1])] + ["a", "`", " "]
    return "".join(pieces[draws.bits(seed, "piece", i) % len(pieces)] for i in range(parts))


@pytest.mark.parametrize("text", [PAPER, NESTING])
def test_the_automaton_agrees_with_a_regular_expression_however_tokens_cut_the_text(text: str) -> None:
    structure = parse_structure(text)
    depths = set()
    for seed in range(250):
        whole = random_text(seed, structure, 1 + seed % 40)
        blocks, at, pieces = Blocks(structure), 0, []
        while at < len(whole):
            n = 1 + draws.bits(seed, "cut", at) % 4
            pieces.append(whole[at : at + n])
            at += n
        table = dict(enumerate(dict.fromkeys(pieces)))
        number = {piece: token for token, piece in table.items()}
        fresh = Structure(
            tuple(tuple((p.opening, p.closing) for p in structure.pairs if p.block == g) for g in (1, 2, 3))
        )
        blocks = Blocks(fresh)
        for piece in pieces:
            blocks.feed(number[piece], table.__getitem__)
        blocks.read(blocks.pending, last=True)
        expected = blocks_by_regex(structure, whole)
        assert [p.block for p in blocks.stack] == expected, whole
        assert blocks.block == (expected[-1] if expected else OUTSIDE)
        depths.add(len(expected))
    assert max(depths) >= 3


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("a $b$ c", [OUTSIDE]),
        ("a $$b$$ $c", [2]),
        ("$a$$b$", [OUTSIDE]),
        ("```python x ```python", [OUTSIDE]),
        ("<t> ```python $x", [1, 1, 2]),
        ("```", [OUTSIDE]),
        ("</t>", [OUTSIDE]),
    ],
)
def test_blocks_worked_by_hand(text: str, blocks: list[int]) -> None:
    read = Blocks(parse_structure(PAPER))
    read.read(text, last=True)
    assert ([p.block for p in read.stack] or [OUTSIDE]) == blocks


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[(", "no Python literal"),
        ("__import__('os')", "no Python literal"),
        ("{'a': 1}", "expected a list of groups"),
        ("[('a', 'b')]", "expected a list of groups"),
        ("[[('a',)]]", "expected a list of groups"),
        ("[[('a', 1)]]", "expected a list of groups"),
        ("[[('', 'b')]]", "is empty"),
        ("[[('a', 'b')], [('a', 'c')]]", "opens two pairs"),
        ("[" * 50_000, "no Python literal"),
        ("[" * 70_000, "at most"),
    ],
)
def test_a_malformed_structure_is_one_clear_line(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        parse_structure(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def _host(table: dict[int, str]) -> HostInfo:
    host = toy_host()
    return HostInfo(host.profile, 16, 4096, token_text=table.__getitem__)


def test_a_request_drafts_from_blocks_of_its_kind_alone() -> None:
    """Code is 1 2 3 4 in a fence; prose has 1 2 9. The fence comes in two tokens."""
    table = {1: "x", 2: "y", 3: "z", 4: "w", 9: "v", 20: "``", 21: "`python\n", 22: "```"}
    drafter = Structured()
    state = drafter.new_state(_host(table))

    def commit(request: int, *tokens: int) -> list[int]:
        drafter.commit(state, request, np.array(tokens, dtype=np.uint32))
        return drafter.propose(state, request, 2).tokens.tolist()

    for request in (1, 2):
        drafter.begin(state, RequestView(request, 0, 0, 0, 0, 0, structure=PAPER), np.zeros(0, np.uint32))
    assert commit(1, 1, 2, 9, 20, 21, 1, 2, 3, 4) == []
    drafter.finish(state, 1)  # unterminated
    assert commit(2, 1, 2) == [9, 20]
    assert commit(2, 20) == []
    assert commit(2, 21, 1, 2) == [3, 4]
    assert commit(2, 22, 1, 2) == [20, 21]  # as often as 9, and later


def test_a_malformed_structure_stops_its_request_alone() -> None:
    drafter = Structured()
    state = drafter.new_state(_host({1: "x"}))
    bad = RequestView(1, 0, 0, 0, 0, 0, structure="[[")
    with pytest.raises(InputError, match="structure"):
        drafter.begin(state, bad, np.zeros(0, np.uint32))
    drafter.begin(state, RequestView(2, 0, 0, 0, 0, 0), np.zeros(0, np.uint32))
    drafter.commit(state, 2, np.array([1, 1, 1, 1], dtype=np.uint32))
    assert len(drafter.propose(state, 2, 4).tokens)
