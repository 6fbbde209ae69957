"""Pieces of HTML. Text is escaped here, and only here: whatever comes in is text, never markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NewType

Html = NewType("Html", str)


def text(value: object) -> Html:
    """Return any value as escaped text.

    >>> text("<b>&'")
    '&lt;b&gt;&amp;&#x27;'
    """
    return Html(html.escape(str(value), quote=True))


def prose(value: object) -> Html:
    """Return escaped text whose percent signs stay on the line of their number.

    >>> prose("3.4 % lower") == "3.4\\u00a0% lower"
    True
    """
    return Html(text(value).replace(" %", "\u00a0%"))


def join(parts: Iterable[Html], between: str = "\n") -> Html:
    """Return the parts one after the other; `between` is markup."""
    return Html(between.join(parts))


def tag(name: str, *children: Html, **attributes: object) -> Html:
    """Return an element; attribute names as Python spells them (`class_`), values escaped.

    >>> tag("td", text("1 < 2"), class_="x")
    '<td class="x">1 &lt; 2</td>'
    """
    given = "".join(f' {k.rstrip("_").replace("_", "-")}="{text(v)}"' for k, v in attributes.items())
    return Html(f"<{name}{given}>{''.join(children)}</{name}>")


def table(head: Sequence[Html], rows: Iterable[Sequence[Html]], class_: str = "") -> Html:
    """Return a table in a box that scrolls sideways; the first cell of a row is its header."""
    top = tag("thead", tag("tr", *[tag("th", h, scope="col") for h in head])) if head else Html("")
    body = [
        tag("tr", tag("th", first, scope="row"), *[tag("td", c) for c in cells]) for first, *cells in rows
    ]
    made = (
        tag("table", top, tag("tbody", *body), class_=class_)
        if class_
        else tag("table", top, tag("tbody", *body))
    )
    return tag("div", made, class_="scroll")


def bullets(lines: Iterable[object]) -> Html:
    """Return a list of lines of text."""
    return tag("ul", *[tag("li", text(line)) for line in lines])


def details(summary: str, *children: Html) -> Html:
    """Return a part that opens on a click."""
    return tag("details", tag("summary", text(summary)), *children)


def key_values(mapping: Mapping[str, Any]) -> Html:
    """Return a nested mapping as a table of dotted names and values."""
    return table([], [[text(k), text(v)] for k, v in flat(mapping)])


def flat(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, value as text) of nested mappings, in their order; lists on one line.

    >>> list(flat({"a": {"b": 1, "c": [2, 3]}}))
    [('a.b', '1'), ('a.c', '2, 3')]
    """
    if isinstance(value, Mapping):
        for k, v in value.items():
            yield from flat(v, f"{prefix}.{k}" if prefix else str(k))
    elif isinstance(value, list | tuple):
        if any(isinstance(v, Mapping | list | tuple) for v in value):
            for i, v in enumerate(value):
                yield from flat(v, f"{prefix}[{i}]")
        else:
            yield prefix, ", ".join(str(v) for v in value)
    else:
        yield prefix, "" if value is None else str(value)
