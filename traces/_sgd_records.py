"""Schema-Guided Dialogue's offers and what users answer, as numbers. No text leaves this module.

A chain begins with a system turn that offers (OFFER) and goes on while the user asks for details (REQUEST) or for
something else (REQUEST_ALTS); it ends with a pick (SELECT) or with any other act. An offer of several values of one
slot is a menu; all others are single.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traces._records import get, load_json, objects
from traces.errors import InputError, at
from traces.identity import canonical_json, identity, text_tokens

SELECT, ALTERNATIVES, DETAILS, OTHER = "select", "alternatives", "details", "other"
_ACTS = (("SELECT", SELECT), ("REQUEST_ALTS", ALTERNATIVES), ("REQUEST", DETAILS))


@dataclass(frozen=True)
class Said:
    """An utterance: its identity, tokens, and words to read."""

    key: int
    tokens: int
    words: int


@dataclass(frozen=True)
class Round:
    """A wait for the user: what is on offer (items as identities), what is read, what is done, what is answered.

    picked   place of the item in `items`; -1 when the act is no pick, or picks what is not in them
    reply    what the system says next; None at the end of the dialogue
    """

    items: tuple[int, ...]
    shown: Said
    act: str
    picked: int
    reply: Said | None


@dataclass(frozen=True)
class Chain:
    """Rounds about one offer. history: utterances before it; call: identity of the search that found it, 0 for none."""

    name: str
    history: tuple[Said, ...]
    call: int
    offer: Said
    rounds: tuple[Round, ...]

    @property
    def menu(self) -> bool:
        """Say whether several items are on offer in one of its rounds."""
        return any(len(r.items) > 1 for r in self.rounds)


def chains(path: Path, skipped: Counter[str]) -> Iterator[Chain]:
    """Yield the chains of a `dialogues_*.json` file. Counts in `skipped` those without an answer."""
    value = load_json(path)
    if not isinstance(value, list):
        raise InputError(f"{path}: expected a list of dialogues")
    for i, dialogue in enumerate(value):
        yield from _Dialogue(path, dialogue, f"[{i}].").chains(skipped)


class _Dialogue:
    def __init__(self, path: Path, dialogue: Any, inside: str) -> None:
        self._path, self._inside = path, inside
        self.name = get(dialogue, "dialogue_id", str, path, inside)
        self._turns = objects(dialogue, "turns", path, inside)
        self._said = [self._utterance(t) for t in self._turns]
        self._actions = [list(self._actions_of(t)) for t in self._turns]
        self._system = [get(t, "speaker", str, path, f"{inside}turns.") == "SYSTEM" for t in self._turns]

    def chains(self, skipped: Counter[str]) -> Iterator[Chain]:
        t = 0
        while t < len(self._turns):
            items = self._offer(t)
            if not items:
                t += 1
                continue
            begin, rounds = t, list[Round]()
            while t + 1 < len(self._turns):
                items = self._offer(t) or items  # a reply without an offer leaves the last one standing
                rounds.append(self._round(t, items))
                t += 2
                if rounds[-1].act in (SELECT, OTHER):
                    break
            if rounds and (rounds[-1].act != SELECT or rounds[-1].picked >= 0):
                yield Chain(
                    f"{self.name}:{begin}",
                    tuple(self._said[:begin]),
                    self._call(begin),
                    self._said[begin],
                    tuple(rounds),
                )
            else:
                skipped["pick that names no item on offer" if rounds else "offer without an answer"] += 1
                t += not rounds

    def _round(self, t: int, items: tuple[tuple[str, str], ...]) -> Round:
        acts = {a for _, a, _, _ in self._actions[t + 1]}
        act = next((name for given, name in _ACTS if given in acts), OTHER)
        picked = -1
        if act == SELECT:
            named = [v for _, a, _, values in self._actions[t + 1] if a == "SELECT" for v in values]
            values = [v for _, v in items]
            if len(items) == 1:
                picked = 0
            elif named and named[0] in values:
                picked = values.index(named[0])
        keys = tuple(identity("item", service, v) for service, v in items)
        reply = self._said[t + 2] if t + 2 < len(self._turns) else None
        return Round(keys, self._said[t], act, picked, reply)

    def _offer(self, t: int) -> tuple[tuple[str, str], ...]:
        """Return (service, value) of the items on offer in a system turn: a menu's, or all slots of one item as one."""
        if not self._system[t]:
            return ()
        offered = [(s, v) for s, a, _, v in self._actions[t] if a == "OFFER" and v]
        menu = next((x for x in offered if len(x[1]) > 1), None)
        if menu is not None:
            return tuple((menu[0], v) for v in menu[1])
        if not offered:
            return ()
        return ((offered[0][0], canonical_json(sorted(v for _, values in offered for v in values))),)

    def _call(self, t: int) -> int:
        for frame in objects(self._turns[t], "frames", self._path, f"{self._inside}turns."):
            if frame.get("service_call"):
                return identity("call", str(frame.get("service")), canonical_json(frame["service_call"]))
        return 0

    def _utterance(self, turn: Any) -> Said:
        text = get(turn, "utterance", str, self._path, f"{self._inside}turns.")
        return Said(identity("utterance", text), text_tokens(text), max(1, len(text.split())))

    def _actions_of(self, turn: Any) -> Iterator[tuple[str, str, str, list[str]]]:
        """Yield (service, act, slot, canonical values) of a turn."""
        place = f"{self._inside}turns."
        for frame in objects(turn, "frames", self._path, place):
            service = get(frame, "service", str, self._path, f"{place}frames.")
            for action in objects(
                {"actions": frame.get("actions") or []}, "actions", self._path, f"{place}frames."
            ):
                values = action.get("canonical_values") or action.get("values") or []
                if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
                    raise InputError(
                        f"{at(self._path, field=place + 'frames.actions.values')}: expected texts"
                    )
                yield service, get(action, "act", str, self._path, place), str(action.get("slot")), values
