"""Import MuSiQue: questions of 2 to 4 hops, as the workflow of an agent that looks things up.

The data set is questions, not traces. What comes from it: hops and what waits for what, which entity each hop looks up
and which article supports it, sizes of questions and paragraphs, which names stand in the question and in paragraphs
already read and how a cheap drafter ranks them (`traces/mentions.py`), and what recurs. The workflows are ours
(`traces/_react_flow.py`, `traces/_subagent_flow.py`); times and the lengths that MuSiQue does not hold are the clocks'
(`traces/clocks/react.json`, `subagent.json`). Names are identities; no text is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traces import _react_flow, _subagent_flow
from traces._musique_mix import CLASSES, mixed, parts
from traces._musique_records import SUFFIXES, Hop, Question, questions
from traces._records import head_of, wanted
from traces.branch_flow import Flow
from traces.builder import WorkloadBuilder
from traces.clocks import load
from traces.errors import InputError, nearest
from traces.identity import identity
from traces.recurrence import seen_before
from traces.schema import Workload

SOURCE = (
    "MuSiQue-Ans (StonyBrookNLP/musique): questions with decomposition, paragraphs where the file has them"
)
LICENCE = "CC BY 4.0"
FLOWS = ("react", "subagent")
PASSAGES = ("any", "read", "own")
# Keys under which a hop can recur.
KEYS: dict[str, Callable[[Hop], int]] = {
    "supporting title": lambda h: h.title.key,
    "entity looked up": lambda h: h.entity.key,
    "resolved sub-question": lambda h: h.query,
    "sub-question template": lambda h: h.template,
}


def read(
    path: Path,
    *,
    flow: str = "react",
    passages: str = "any",
    mix: bool = False,
    most_options: int = 8,
    clock: str | None = None,
    seed: int = 0,
    block_tokens: int = 16,
    only: Path | None = None,
) -> Workload:
    """Return the workload of a MuSiQue file or folder; one workflow a question.

    flow: react or subagent. passages: which questions, `any`, those of which every paragraph that a later hop needs
    is there (`read`), or those that come with their own paragraphs (`own`). mix: requests that repeat others in
    whole, in part or not at all, made of these questions (`traces/_musique_mix.py`; subagent only). most_options:
    names that a decision has options for, beside the chosen ones. clock: a name or a file `*.json` (default: the
    flow's). seed: of what the clock draws. only: import the questions whose id is in this text file or `.workload`.
    Raises InputError.
    """
    for name, value, allowed in (("flow", flow, FLOWS), ("passages", passages, PASSAGES)):
        if value not in allowed:
            raise InputError(nearest(value, allowed, what=f"option {name}"))
    if mix and flow != "subagent":
        raise InputError("mix=true: has a say with flow=subagent only")
    if most_options < 1 or block_tokens < 1:
        raise InputError("most_options and block_tokens must be at least 1")
    module = _react_flow if flow == "react" else _subagent_flow
    times = load(flow if clock is None else clock).require(*module.QUANTITIES)
    skipped: Counter[str] = Counter()
    given = wanted(only)
    names = None if given is None else {part for name in given for part in parts(name)}
    found = []
    for question in questions(path, names, skipped):
        if passages != "any" and not (question.readable if passages == "read" else question.retrieved):
            skipped["question without the paragraphs"] += 1
        else:
            found.append(question)
    if not found:
        raise InputError(f"{path}: no question asked for in it")
    if mix:
        found = mixed(found)
    builder = WorkloadBuilder(flow, block_tokens)
    branches = builder.with_branches(module.DRAFTERS)
    tokens = module.passage_tokens(found)
    maker = (_react_flow.React if flow == "react" else _subagent_flow.SubAgents)(tokens, most_options)
    for question in found:
        builder.workflow(question.name)
        maker.add(Flow(builder, branches, times, seed, identity("question", question.name)), question)
    return builder.build(
        {
            "source": SOURCE,
            "licence": LICENCE,
            "format": "musique",
            "records": _counts(found, flow),
            "recurrence": {
                name: {
                    str(n): share
                    for n, share in seen_before([[key(h) for h in q.hops] for q in found]).items()
                }
                for name, key in KEYS.items()
            },
            "from_the_data": "hops, entities, articles, sizes of questions and paragraphs (4.44 bytes a token), names"
            " in questions and paragraphs and their ranks",
            "assumed": _assumed(flow, most_options)
            | ({"mix": "roles, what is lent and the order by hashes of ids"} if mix else {}),
            "seed": seed,
            **times.said(),
            "not_imported": dict(sorted(skipped.items())),
        }
    )


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a file's head, or the first file of a folder, looks like MuSiQue."""
    found = head_of(path, head, SUFFIXES)
    return b'"question_decomposition"' in found or (
        b'"paragraphs"' in found and b'"is_supporting"' in found and b"hop" in found
    )


def _counts(found: list[Question], flow: str) -> dict[str, Any]:
    hops = sum(len(q.hops) for q in found)
    said: dict[str, Any] = {
        "questions": len(found),
        "shapes": dict(sorted(Counter(q.shape for q in found).items())),
        "hops": hops,
        "questions_with_their_own_paragraphs": sum(bool(q.retrieved) for q in found),
        "questions_whose_needed_paragraphs_are_there": sum(q.readable for q in found),
    }
    classes = Counter(q.name.partition("/")[0] for q in found if "/" in q.name)
    if classes:
        said["requests_by_class"] = {name: classes[name] for name in CLASSES}
    if flow == "subagent":
        return said
    ranks = [
        [n.key for n in names].index(h.entity.key) if h.entity.key in {n.key for n in names} else 1000
        for q in found
        for k, h in enumerate(q.hops)
        if k and h.waits_for == (k - 1,) and (names := q.passages[k - 1]) is not None
    ]
    if ranks:
        said["next_entities_ranked_in_the_paragraph_before"] = len(ranks)
        said["of_those_among_the_best"] = {
            str(k): round(sum(r < k for r in ranks) / len(ranks), 4) for k in (1, 2, 3, 8)
        }
    return said


def _assumed(flow: str, most_options: int) -> dict[str, str]:
    if flow == "react":
        return {
            "workflow": "think > search > think > ... > answer; a search is for the entity of the next hop, in"
            " decomposition order, and finds the paragraph that supports it",
            "prompts": "earlier thoughts are not sent again",
            "options": f"the {most_options} names ranked best: of the paragraph just read, then of the question",
        }
    return {
        "workflow": "orchestrator > (search > researcher) for each supporting article, at once > writer",
        "sub-topics": "titles of the supporting articles, all known to the plan",
        "options": f"{most_options} names of the question in its order, {most_options} titles of its own paragraphs by"
        " tf-idf",
    }
