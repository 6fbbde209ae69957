"""Which Mooncake records form a workflow, and in which order: sessions joined by what they wait for."""

from __future__ import annotations

import difflib
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError, at
from traces.reading import shown


@dataclass(frozen=True)
class Node:
    """One record. `parents` are the lines of the records it waits for, filled in by `workflows`."""

    line: int
    name: str
    session: str
    timestamp_ns: int | None
    prompt_tokens: int
    output_tokens: int
    hashes: NDArray[np.uint64] | None
    wait_for: tuple[str, ...]
    delay_ns: int
    tool_ns: int
    parents: tuple[int, ...] = ()


def workflows(path: Path, nodes: list[Node], agentic: bool) -> list[list[Node]]:
    """Return the records of each workflow, parents first, workflows in the order of their first record.

    Agentic: edges are `wait_for`. Plain: a record waits for the one before it in its session. Raises
    InputError for a request id given twice, a wait for an unknown request, and a cycle.
    """
    linked = _by_name(path, nodes) if agentic else _by_session(nodes)
    groups: dict[str, list[Node]] = {}
    root = _components(linked)
    for node in linked:
        groups.setdefault(root[node.line], []).append(node)
    return [_ordered(path, group) for group in groups.values()]


def _by_session(nodes: list[Node]) -> list[Node]:
    last: dict[str, int] = {}
    out = []
    for node in nodes:
        before = last.get(node.session) if node.session else None
        out.append(node if before is None else replace(node, parents=(before,)))
        last[node.session] = node.line
    return out


def _by_name(path: Path, nodes: list[Node]) -> list[Node]:
    line_of: dict[str, int] = {}
    for node in nodes:
        if not node.name:
            raise InputError(f"{at(path, node.line, 'request_id')}: missing, and the trace has 'wait_for'")
        if node.name in line_of:
            raise InputError(
                f"{at(path, node.line, 'request_id')}: got {shown(node.name)} again, "
                f"first on line {line_of[node.name]}"
            )
        line_of[node.name] = node.line
    out = []
    for node in nodes:
        for name in node.wait_for:
            if name not in line_of:
                close = difflib.get_close_matches(name, line_of, n=1, cutoff=0.5)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise InputError(
                    f"{at(path, node.line, 'wait_for')}: got {shown(name)}, no request has this id{hint}"
                )
        out.append(replace(node, parents=tuple(dict.fromkeys(line_of[name] for name in node.wait_for))))
    return out


def _components(nodes: list[Node]) -> dict[int, str]:
    """Return for each line the representative of its workflow: a session and what it waits for are one."""
    above: dict[str, str] = {}

    def find(x: str) -> str:
        while above.setdefault(x, x) != x:
            above[x] = above[above[x]]
            x = above[x]
        return x

    for node in nodes:
        mine = f"line {node.line}"
        if node.session:
            above[find(mine)] = find(f"session {node.session}")
        for parent in node.parents:
            above[find(mine)] = find(f"line {parent}")
    return {node.line: find(f"line {node.line}") for node in nodes}


def _ordered(path: Path, group: list[Node]) -> list[Node]:
    """Return the group with parents first, else in file order; InputError names the cycle."""
    waiting = {n.line: len(n.parents) for n in group}
    children: dict[int, list[Node]] = {}
    for node in group:
        for parent in node.parents:
            children.setdefault(parent, []).append(node)
    ready = deque(n for n in group if not n.parents)
    out: list[Node] = []
    while ready:
        node = ready.popleft()
        out.append(node)
        for child in children.get(node.line, ()):
            waiting[child.line] -= 1
            if not waiting[child.line]:
                ready.append(child)
    if len(out) < len(group):
        raise InputError(_cycle(path, {n.line: n for n in group if waiting[n.line]}))
    return out


def _cycle(path: Path, stuck: dict[int, Node]) -> str:
    # Every stuck record waits for a stuck one: following such parents must come back to where it has been.
    line = min(stuck)
    trail: list[int] = []
    while line not in trail:
        trail.append(line)
        line = next(p for p in stuck[line].parents if p in stuck)
    loop = trail[trail.index(line) :]
    start = min(loop)
    loop = loop[loop.index(start) :] + loop[: loop.index(start)]
    names = [stuck[n].name for n in [*loop, start]]
    shown_names = names if len(names) <= 6 else [*names[:3], "...", *names[-2:]]
    return f"{at(path, start, 'wait_for')}: requests wait for each other: {' > '.join(shown_names)}"
