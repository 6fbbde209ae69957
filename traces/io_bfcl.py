"""Import BFCL (`bfcl_eval/data`): which of the functions on offer a question calls, with which arguments.

The data set is questions and answers, not traces. What comes from it: candidate sets, choices, the order of calls in
turns, sizes of questions, descriptions and calls, how alike question and description are (tf-idf), and whether
each argument stands in what was read (then a drafter can copy it). The workflow is ours (`traces/_routing_flow.py`),
times and the lengths that BFCL does not hold are the clock's (`traces/clocks/routing.json`). No text is kept.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from traces._bfcl_records import SETS, Task, tasks
from traces._records import wanted
from traces._routing_flow import DRAFTERS, QUANTITIES, Recipe, Routing, said
from traces.branch_flow import Flow
from traces.builder import WorkloadBuilder
from traces.clocks import load
from traces.errors import InputError, nearest
from traces.identity import identity
from traces.schema import Workload
from traces.tfidf import TfIdf

SOURCE = "Berkeley function-calling leaderboard, bfcl_eval/data (ShishirPatil/gorilla)"
LICENCE = "Apache-2.0"
ARGUMENTS = ("router", "handler")


def read(
    path: Path,
    *,
    sets: str = "live_multiple,multi_turn_base",
    arguments: str = "router",
    most_options: int = 8,
    clock: str = "routing",
    seed: int = 0,
    block_tokens: int = 16,
    only: Path | None = None,
) -> Workload:
    """Return the workload of a BFCL data folder; one workflow a record.

    sets: names joined by commas, of `SETS`. arguments: who names them, `router` (a candidate must guess them) or
    `handler`. most_options: options of a decision beside the chosen one. clock: a name or a file `*.json`.
    seed: of what the clock draws. only: import the records whose id is in this text file or `.workload`.
    Raises InputError.
    """
    if not path.is_dir():
        raise InputError(f"{path}: expected the folder with BFCL_v*_SET.json and possible_answer/")
    if arguments not in ARGUMENTS:
        raise InputError(nearest(arguments, ARGUMENTS, what="option arguments"))
    if most_options < 1 or block_tokens < 1:
        raise InputError("most_options and block_tokens must be at least 1")
    times = load(clock).require(*QUANTITIES)
    recipe = Recipe(arguments == "router", most_options)
    names, skipped, found = wanted(only), Counter[str](), list[Task]()
    for group in sets.split(","):
        if group not in SETS:
            raise InputError(nearest(group, SETS, what="set"))
        for task in tasks(path, group):
            if names is not None and task.name not in names:
                skipped["record not asked for"] += 1
            else:
                found.append(task)
    if not found:
        raise InputError(f"{path}: no record asked for in it")
    builder = WorkloadBuilder("routing", block_tokens)
    branches = builder.with_branches(DRAFTERS)
    weights = TfIdf({f.key: f.words for t in found for f in t.functions}.values())
    for task in found:
        builder.workflow(task.name)
        flow = Flow(builder, branches, times, seed, identity("task", task.name))
        Routing(flow, task, recipe, weights).add()
    return builder.build(
        {
            "source": SOURCE,
            "licence": LICENCE,
            "format": "bfcl",
            "records": _counts(found, weights),
            "from_the_data": "candidates, choices, order of calls, sizes of questions, functions and calls (4.44 bytes"
            " a token), retrieval scores, arguments that stand in the text",
            "assumed": said(times, recipe),
            "seed": seed,
            **times.said(),
            "not_imported": dict(sorted(skipped.items())),
        }
    )


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a folder is BFCL's."""
    return path.is_dir() and (path / "possible_answer").is_dir() and any(path.glob("BFCL_v*.json"))


def _counts(found: list[Task], weights: TfIdf) -> dict[str, Any]:
    calls = [(t, u, c) for t in found for u in t.turns for c in u.calls]
    ranks: dict[str, list[int]] = {}
    for t, u, c in calls:
        score = [weights.score(u.words, f.words) for f in t.functions]
        ranks.setdefault(t.group, []).append(_rank(score, c.function))
    return {
        "tasks": dict(sorted(Counter(t.group for t in found).items())),
        "calls": len(calls),
        "functions": len({f.key for t in found for f in t.functions}),
        "functions_on_offer_mean": round(sum(len(t.functions) for t in found) / len(found), 3),
        "arguments_that_stand_in_the_text": round(
            sum(c.literal for *_, c in calls) / max(sum(c.values for *_, c in calls), 1), 4
        ),
        "calls_whose_arguments_all_can_be_copied": round(
            sum(c.copied for *_, c in calls) / max(len(calls), 1), 4
        ),
        "chosen_among_the_best_by_retrieval": {
            group: {str(k): round(sum(r < k for r in row) / len(row), 4) for k in (1, 2, 3)}
            for group, row in sorted(ranks.items())
        },
    }


def _rank(score: list[float], chosen: int) -> int:
    """Return how many places stand before `chosen`, best score first, ties in the order of the file."""
    return sum((-s, j) < (-score[chosen], chosen) for j, s in enumerate(score))
