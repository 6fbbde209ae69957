"""The controller's events and commands, written as they happen, and read back to ask another controller the same.

One JSON object a line: {"event": ..., "commands": [...]}; an object is a list of its class and its fields' values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TextIO, get_args

from policies import branch_events, views
from policies.branch_events import Command, Event
from policies.branching import Controller
from traces.errors import InputError, at

_LINE_CHARS_MAX = 1 << 24
_KINDS: dict[str, type[Any]] = {
    name: kind
    for module in (views, branch_events)  # both have a Draft: of tokens, and the command
    for name, kind in vars(module).items()
    if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields"))
}


class JournalledController(Controller):
    """A controller whose every event and answer is written down. `journal` is set before the first event."""

    journal: TextIO | None = None

    def handle(self, event: Event) -> list[Command]:
        """Take an event; return the commands to carry out."""
        commands = super().handle(event)
        if self.journal is not None:
            line = {"event": encoded(event), "commands": [encoded(c) for c in commands]}
            self.journal.write(json.dumps(line, separators=(",", ":")) + "\n")
        return commands


def read_journal(path: Path) -> Iterator[tuple[Event, list[Command]]]:
    """Yield events with their commands. A last line that a dying process cut off is left out; InputError for others."""
    try:
        with path.open(encoding="utf-8") as file:
            number = 0
            while line := file.readline(_LINE_CHARS_MAX):
                number += 1
                if len(line) >= _LINE_CHARS_MAX:
                    raise InputError(f"{at(str(path), number)}: more than {_LINE_CHARS_MAX} characters")
                if not line.endswith("\n"):
                    return
                try:
                    given = json.loads(line)
                    event, commands = decoded(given["event"]), [decoded(c) for c in given["commands"]]
                    if not isinstance(event, get_args(Event)) or not all(
                        isinstance(c, get_args(Command)) for c in commands
                    ):
                        raise ValueError("something else")
                    yield event, commands
                except (KeyError, TypeError, ValueError, RecursionError) as e:
                    raise InputError(f"{at(str(path), number)}: no event with its commands: {e}") from e
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"{path}: {e}") from e


def first_difference(path: Path, controller: Controller) -> str | None:
    """Ask a fresh controller what the journal's was asked; return where its commands differ first, None: nowhere."""
    for number, (event, commands) in enumerate(read_journal(path), 1):
        got = controller.handle(event)
        if got != commands:
            return f"{path}:{number}: {type(event).__name__}: recorded {commands}, now {got}"
    return None


def encoded(x: Any) -> Any:
    """Return an event, a command, or a part of one as JSON values."""
    if is_dataclass(x) and not isinstance(x, type):
        return {"is": type(x).__name__, "of": [encoded(getattr(x, f.name)) for f in fields(x)]}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return {"is": type(x).__name__, "of": [encoded(v) for v in x]}
    if isinstance(x, tuple | list):
        return [encoded(v) for v in x]
    if isinstance(x, dict):
        return {"map": [[k, encoded(v)] for k, v in x.items()]}
    return x


def decoded(x: Any) -> Any:
    """Return what `encoded` was given; ValueError for a class that no event has."""
    if isinstance(x, list):
        return tuple(decoded(v) for v in x)
    if not isinstance(x, dict):
        return x
    if "map" in x:
        return {k: decoded(v) for k, v in x["map"]}
    kind = _KINDS.get(x["is"])
    if kind is None:
        raise ValueError(f"class {str(x['is'])[:60]!r}")
    return kind(*(decoded(v) for v in x["of"]))
