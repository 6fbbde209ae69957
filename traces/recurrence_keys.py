"""What can recur in a public set, under named keys: numbers for `python -m traces recurrence`.

A key is what makes two requests for work the same: the article, the entity, the question word by word, the command in
its repository. Which one a published share was counted with decides what it means, so every share is given with its
key.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traces import io_hover, io_reflexion, io_sgd, io_sweagent
from traces._musique_records import questions
from traces._records import get, load_json, source_files
from traces._sgd_records import SELECT, chains
from traces.errors import InputError, nearest
from traces.identity import identity
from traces.io_musique import KEYS
from traces.reading import head_bytes, read_bytes, records
from traces.recurrence import shares_by_order

Groups = list[list[int]]
_SEARCH = re.compile(r"^Action(?: \d+)?: Search\[(.*)\]", re.MULTILINE)


def measure(path: Path, form: str) -> dict[str, Any]:
    """Return, for each key of a set, what recurs. Raises InputError.

    groups, mentions   how many there are
    seen_before        by number of groups, the share of mentions that an earlier one equals: mean of 20 random orders,
                       and the lowest and highest of them
    there_twice        share of mentions whose key is there twice or more
    """
    if form not in SOURCES:
        raise InputError(nearest(form, SOURCES, what="source of recurrence"))
    out = {}
    for key, groups in SOURCES[form](path).items():
        count = Counter(k for g in groups for k in g)
        total = sum(count.values())
        out[key] = {
            "groups": len(groups),
            "mentions": total,
            "seen_before": {
                str(n): [round(x, 4) for x in (sum(s) / len(s), min(s), max(s))]
                for n, s in shares_by_order(groups).items()
            },
            "there_twice": round(sum(n for n in count.values() if n > 1) / max(total, 1), 4),
        }
    return out


def _musique(path: Path) -> dict[str, Groups]:
    found = questions(path, None, Counter())
    return {name: [[key(h) for h in q.hops] for q in found] for name, key in KEYS.items()}


def _titles(path: Path, suffixes: tuple[str, ...]) -> dict[str, Groups]:
    """Articles behind `supporting_facts`: [[title, sentence], ...] of HotpotQA, 2WikiMultihopQA and HoVer."""
    groups = []
    seen: set[str] = set()
    for file in source_files(path, suffixes):
        for record in _every(file):
            facts = record.get("supporting_facts")
            name = str(record.get("_id", record.get("uid", len(seen))))
            if isinstance(facts, list) and name not in seen:
                seen.add(name)
                titles = dict.fromkeys(str(f[0]) for f in facts if isinstance(f, list) and f)
                groups.append([identity("name", t) for t in titles])
    if not groups:
        raise InputError(f"{path}: no record with supporting_facts in it")
    return {"supporting title": groups}


def _every(file: Path) -> list[dict[str, Any]]:
    if not head_bytes(file, 64).lstrip().startswith(b"["):
        return [r for _, r in records(file)]
    value = load_json(file)
    return [r for r in value if isinstance(r, dict)] if isinstance(value, list) else []


def _sgd(path: Path) -> dict[str, Groups]:
    found = [
        c
        for f in source_files(path, io_sgd.SUFFIXES)
        if not f.name.startswith("schema.")
        for c in chains(f, Counter())
    ]
    picked = [[r.items[r.picked] for r in c.rounds if r.act == SELECT and r.picked >= 0] for c in found]
    return {"item picked": picked, "search": [[c.call] if c.call else [] for c in found]}


def _sweagent(path: Path) -> dict[str, Groups]:
    """Commands by repository, word for word; the issues of one run of the agent are the groups."""
    groups = []
    for file in source_files(path, io_sweagent.SUFFIXES):
        repository = file.stem.rpartition("-")[0]
        steps = get(load_json(file), "trajectory", list, file)
        actions = [get(s, "action", str, file, f"trajectory[{i}].").strip() for i, s in enumerate(steps)]
        groups.append([identity("command", repository, a) for a in actions if a])
    return {"command in its repository": groups}


def _reflexion(path: Path) -> dict[str, Groups]:
    """Searches that a recorded ReAct agent made, word for word, in the first trial of each log: one run."""
    groups = []
    for file in source_files(path, io_reflexion.SUFFIXES):
        trials = read_bytes(file).decode(errors="replace").split("BEGIN TRIAL")
        questions = re.split(r"^Question:", trials[min(1, len(trials) - 1)], flags=re.MULTILINE)[1:]
        groups += [_SEARCH.findall(q) for q in questions]
    return {"search": [[identity("name", s) for s in g] for g in groups]}


SOURCES: dict[str, Callable[[Path], dict[str, Groups]]] = {
    "musique": _musique,
    "titles": lambda path: _titles(path, (*io_hover.SUFFIXES, ".jsonl")),
    "sgd": _sgd,
    "sweagent": _sweagent,
    "reflexion": _reflexion,
}
