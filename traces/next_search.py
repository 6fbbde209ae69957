"""`python -m traces.next_search LOG`: where a recorded ReAct agent's next search comes from.

MuSiQue says what should be looked up next; Reflexion's logs say what an agent did look up. For each search after
the first of a question: does its name stand in the question, in what was observed last, and how does the ranking that
`dynbranch_react` is made with (`traces/_musique_records.py`) place it? Prints counts as JSON; no text.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from traces._musique_records import name_of, ranked_names
from traces._records import source_files
from traces.errors import InputError
from traces.identity import plain
from traces.io_reflexion import SUFFIXES
from traces.mentions import mentions
from traces.reading import read_bytes
from traces.tfidf import TfIdf, terms

RANKS = (1, 2, 3, 8)
_STEP = re.compile(
    r"^Action(?: \d+)?: (\w+)\[([^\n]*)\]\s*^Observation(?: \d+)?: (.*?)(?=^Thought|^Action|\Z)",
    re.MULTILINE | re.DOTALL,
)


def next_searches(path: Path) -> dict[str, Any]:
    """Return counts over the first trial of each log: searches after the first, and where their names stand.

    "ranked" counts searches whose name is among the k best of the last observation, then of the question's names
    not searched before. Raises InputError.
    """
    found = list(_searches(path))
    if not found:
        raise InputError(f"{path}: no search after another in it")
    return {
        "searches_after_the_first": len(found),
        "in_the_question": sum(q for q, _, _ in found),
        "in_the_last_observation": sum(o for _, o, _ in found),
        "ranked": {str(k): sum(r < k for _, _, r in found) for k in RANKS},
    }


def _searches(path: Path) -> Iterator[tuple[bool, bool, int]]:
    """Yield (in the question, in the last observation, place among the candidates) of each search."""
    for file in source_files(path, SUFFIXES):
        trials = read_bytes(file).decode(errors="replace").split("BEGIN TRIAL")
        for attempt in re.split(r"^Question:", trials[min(1, len(trials) - 1)], flags=re.MULTILINE)[1:]:
            question, _, steps = attempt.partition("\n")
            asked, about = f" {plain(question)} ", set(terms(question))
            own = [name_of(n).key for n, _ in mentions(question)]
            before: str | None = None
            searched: set[int] = set()
            for action, argument, observation in _STEP.findall(steps):
                key = name_of(argument).key
                if action == "Search" and before is not None:
                    weights = TfIdf([terms(before)])
                    best = [n.key for n in ranked_names(before, asked, about, weights)]
                    order = [k for k in dict.fromkeys([*best, *own]) if k not in searched]
                    place = order.index(key) if key in order else len(order) + RANKS[-1]
                    yield (
                        f" {plain(argument)} " in asked,
                        f" {plain(argument)} " in f" {plain(before)} ",
                        place,
                    )
                if action == "Search":
                    searched.add(key)
                before = observation


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return its exit status (2 for bad input, with one line on stderr)."""
    try:
        if len(arguments) != 1:
            raise InputError("usage: python -m traces.next_search LOG")
        print(json.dumps(next_searches(Path(arguments[0])), indent=1))
    except InputError as e:
        print(e, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
