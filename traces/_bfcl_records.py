"""BFCL's records as numbers: functions, questions, and the calls that answer them. No text leaves this module.

Layout of the original (`bfcl_eval/data`): `BFCL_v*_SET.json` (JSON lines: id, question, function or involved_classes),
`possible_answer/` with the same names (ground_truth), `multi_turn_func_doc/` (functions of each class).
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from traces._records import get, get_or, objects
from traces.errors import InputError, at
from traces.identity import canonical_json, identity, plain, text_tokens
from traces.reading import records, shown
from traces.tfidf import terms

SINGLE = ("live_multiple", "multiple")  # one call answers the question
MANY = ("live_parallel_multiple", "parallel_multiple")  # several calls, none of which waits for another
TURNS = ("multi_turn_base", "multi_turn_long_context")  # turns of calls, one after the other
SETS = (*SINGLE, *MANY, *TURNS)
_DOCS = {
    "GorillaFileSystem": "gorilla_file_system", "MathAPI": "math_api", "MessageAPI": "message_api",
    "TicketAPI": "ticket_api", "TradingBot": "trading_bot", "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api", "VehicleControlAPI": "vehicle_control",
}  # fmt: skip
_VERBS = re.compile(r"\S+").findall
# What the name of a function says it does. A name that says neither is not declared safe to run twice.
_READS = frozenset(
    _VERBS(
        "analyze calc calculate cat check compare compute convert count describe detail diff display du estimate"
        " extract fetch filter find gallon get grep imperial info list liter logarithm lookup ls max mean min"
        " multiply percentage power predict pwd query read recommend retrieve round search si sort square standard"
        " stats subtract sum summarize tail translate verify view wc absolute divide"
    )
)
_WRITES = frozenset(
    _VERBS(
        "activate add adjust append authenticate book buy cancel cd change clear close comment connect contact copy cp"
        " create delete disable echo edit enable execute export fill finish follow fund insert lock login logout make"
        " mention mkdir modify move mv notify open order pay payment place play post press purchase put register"
        " release remove rename replace request reserve reset resolve restore retweet rm rmdir save schedule send set"
        " start stop submit subscribe touch transfer unfollow unlock update upload withdraw write"
    )
)


@dataclass(frozen=True)
class Function:
    """A function a router may choose. `reads`, `writes`: what its name says it does; neither: unknown."""

    key: int
    tokens: int
    words: tuple[str, ...]
    reads: bool
    writes: bool
    owner: str


@dataclass(frozen=True)
class Call:
    """A recorded call: which function, with which arguments; `copied`: each of them stands in what was read."""

    function: int
    arguments: int
    tokens: int
    copied: bool
    values: int
    literal: int


@dataclass(frozen=True)
class Turn:
    """What a user asks and the calls that answer it."""

    key: int
    tokens: int
    words: tuple[str, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Task:
    """One record: its id, its set, the functions on offer in the order of the file, its turns."""

    name: str
    group: str
    functions: tuple[Function, ...]
    turns: tuple[Turn, ...]


def tasks(folder: Path, group: str) -> list[Task]:
    """Return the records of a set that have an answer, in the order of the file. Raises InputError."""
    questions = _file(folder, group)
    answers = {
        get(r, "id", str, path, f"{line}."): get(r, "ground_truth", list, path, f"{line}.")
        for path in [_file(folder / "possible_answer", group)]
        for line, r in records(path)
    }
    docs = _Docs(folder / "multi_turn_func_doc")
    made = []
    for line, record in records(questions):
        name = get(record, "id", str, questions, f"{line}.")
        if name in answers:
            made.append(_task(docs, group, name, record, answers[name], f"{questions}:{line}"))
    return made


def _file(folder: Path, group: str) -> Path:
    found = [
        p for p in sorted(folder.glob("BFCL_v*.json")) if re.fullmatch(rf"BFCL_v\d+_{group}\.json", p.name)
    ]
    if len(found) != 1:
        raise InputError(f"{folder}: expected one file BFCL_v*_{group}.json, found {len(found)}")
    return found[0]


def _task(docs: _Docs, group: str, name: str, record: Any, truth: list[Any], place: str) -> Task:
    path = Path(place)
    if group in TURNS:
        described = docs.functions(record, path)
    else:
        described = [(f, "") for f in objects(record, "function", path)]
    names = [get(f, "name", str, path, "function.") for f, _ in described]
    functions = tuple(_function(f, owner, path) for f, owner in described)
    turns = []
    read = ""
    asked = get(record, "question", list, path)
    answered = truth if group in TURNS else [truth]
    if len(asked) != len(answered):
        raise InputError(
            f"{at(place, field='question')}: {len(asked)} turns, but {len(answered)} in the answer"
        )
    for messages, calls in zip(asked, answered, strict=True):
        said = objects({"question": messages}, "question", path)
        if not isinstance(calls, list):
            raise InputError(f"{at(place, field='ground_truth')}: expected a list of calls a turn")
        text = "\n".join(get(m, "content", str, path, "question.") for m in said)
        read += "\n" + text
        known = f" {plain(read)} "
        made = tuple(_call(c, names, [f for f, _ in described], known, place) for c in calls)
        turns.append(Turn(identity("question", text), text_tokens(text), tuple(terms(text)), made))
    return Task(name, group, functions, tuple(turns))


class _Docs:
    """The functions of each class, read when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, list[dict[str, Any]]] = {}

    def functions(self, record: Any, path: Path) -> list[tuple[dict[str, Any], str]]:
        """Return (function, class) of a record's classes, but for those it excludes. Mutates: it remembers."""
        excluded = get_or(record, "excluded_function", list, [], path)
        out = []
        for owner in get(record, "involved_classes", list, path):
            if not isinstance(owner, str) or owner not in _DOCS:
                raise InputError(
                    f"{at(path, field='involved_classes')}: got {shown(owner)}, known: {', '.join(_DOCS)}"
                )
            if owner not in self._known:
                file = self._folder / f"{_DOCS[owner]}.json"
                self._known[owner] = [f for _, f in records(file)]
            out += [(f, owner) for f in self._known[owner] if f.get("name") not in excluded]
        return out


def _fields(described: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the parameters of a function: name -> object."""
    parameters = get_or(described, "parameters", dict, {}, path, "function.")
    fields = get_or(parameters, "properties", dict, {}, path, "function.parameters.")
    for name in fields:
        get(fields, name, dict, path, "function.parameters.properties.")
    return fields


def _function(described: Any, owner: str, path: Path) -> Function:
    name = get(described, "name", str, path, "function.")
    about = get(described, "description", str, path, f"function {name}.")
    fields = _fields(described, path)
    words = terms(" ".join([name, about, *(f"{k} {v.get('description', '')}" for k, v in fields.items())]))
    text = canonical_json(described)
    verb = next((t for t in (*terms(name), *terms(about)[:1]) if t in _READS or t in _WRITES), "")
    reads = verb in _READS or owner == "MathAPI"
    writes = verb in _WRITES and owner != "MathAPI"
    return Function(identity("function", text), text_tokens(text), tuple(words), reads, writes, owner)


def _call(call: Any, names: list[str], described: list[Any], known: str, place: str) -> Call:
    if isinstance(call, str):
        name, given = _python_call(call, place)
        accepted = {k: [v] for k, v in given.items()}
    else:
        if not isinstance(call, dict) or len(call) != 1:
            raise InputError(f"{at(place, field='ground_truth')}: expected one function a call")
        ((name, accepted),) = call.items()
        if not isinstance(accepted, dict) or not all(isinstance(v, list) for v in accepted.values()):
            raise InputError(f"{at(place, field='ground_truth')}: expected lists of accepted values")
    if name not in names:
        raise InputError(f"{at(place, field='ground_truth')}: a call of a function that is not on offer")
    function = names.index(name)
    fields = _fields(described[function], Path(place))
    copied, values, literal = True, 0, 0
    for field, allowed in accepted.items():
        stands = any(_stands(v, known) for v in allowed if v != "")
        optional = "" in allowed or (
            "default" in fields.get(field, {}) and fields[field]["default"] in allowed
        )
        copied = copied and (stands or optional)
        if "" not in allowed:
            values += 1
            literal += stands
    text = canonical_json(accepted)
    spoken = canonical_json({k: v[0] for k, v in accepted.items() if v and v[0] != ""})
    return Call(function, identity("arguments", text), text_tokens(name + spoken), copied, values, literal)


def _stands(value: Any, known: str) -> bool:
    """Say whether a value stands in what was read, word for word; of a list or an object, each part of it."""
    if isinstance(value, dict):
        return all(
            any(_stands(w, known) for w in (v if isinstance(v, list) else [v])) for v in value.values()
        )
    if isinstance(value, list | tuple):
        return all(_stands(v, known) for v in value)
    if isinstance(value, bool) or value is None:
        return False
    spellings = {plain(str(value))}
    if isinstance(value, Decimal | float) and -1e15 < (number := float(value)) < 1e15 and number.is_integer():
        spellings.add(str(int(number)))
    return any(word and f" {word} " in known for word in spellings)


def _python_call(text: str, place: str) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of a call that is written as Python; positions are named by their number."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call):
            raise ValueError
        name = ast.unparse(call.func).rsplit(".", 1)[-1]
        given = {str(i): ast.literal_eval(a) for i, a in enumerate(call.args)}
        given |= {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        json.dumps(given, allow_nan=False)  # sets, bytes and infinities are no arguments
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise InputError(f"{at(place, field='ground_truth')}: not a call with plain arguments") from None
    return name, given
