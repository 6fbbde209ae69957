"""Text such as agents write, generated: turns of a chat, calls of tools as JSON, their results. Seeded."""

from __future__ import annotations

import json

from traces.draws import bits

_TOOLS: dict[str, tuple[str, ...]] = {
    "open_file": ("path", "line"),
    "search": ("query", "limit"),
    "run_tests": ("path", "verbose"),
    "edit": ("path", "line", "text"),
    "lookup": ("title", "limit"),
    "verify": ("claim", "title"),
}
_NAMES = ("alpha", "bridge", "cobalt", "delta", "ember", "fjord", "garnet", "harbor", "island", "juniper")
_WORDS = (
    "the answer is in this file", "the test fails at this line", "the claim needs one more source",
    "read the next page first", "the value is not set", "the title names another place",
    "change the call and run it again", "no result was found", "both sources agree",
)  # fmt: skip
_ROLES = ("planner", "coder", "tester", "judge", "retriever")


def document(seed: int, *ids: int) -> str:
    """Return one conversation of five to nine turns; depends on its arguments alone."""
    lines = []
    for turn in range(5 + bits(seed, "tiny turns", *ids) % 5):
        lines.append(_turn(seed, (*ids, turn)))
    return "\n".join(lines) + "\n"


def _turn(seed: int, ids: tuple[int, ...]) -> str:
    def pick(what: str, options: tuple[str, ...]) -> str:
        return options[bits(seed, f"tiny {what}", *ids) % len(options)]

    role = pick("role", _ROLES)
    tool = pick("tool", tuple(_TOOLS))
    arguments = {key: _value(seed, key, ids) for key in _TOOLS[tool]}
    call = json.dumps({"tool": tool, "arguments": arguments})
    result = json.dumps({"status": pick("status", ("ok", "ok", "error")), "text": pick("result", _WORDS)})
    return f"{role}: {pick('thought', _WORDS)}.\ncall {call}\nresult {result}"


def _value(seed: int, key: str, ids: tuple[int, ...]) -> str | int:
    drawn = bits(seed, f"tiny {key}", *ids)
    if key in ("line", "limit"):
        return 1 + drawn % 40
    if key == "verbose":
        return drawn % 2
    name = _NAMES[drawn % len(_NAMES)]
    return f"src/{name}.py" if key == "path" else name if key != "text" else _WORDS[drawn % len(_WORDS)]
