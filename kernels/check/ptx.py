"""The guard, read from PTX: the first block loads one word of the plan, and branches on it to an exit without payload.

A replayed graph launches its whole grid. What an inactive program costs is what it does before it knows that it is
inactive: one load and one comparison (paper, section 3), and nothing that a compiler moved up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_REGISTER = re.compile(r"%[a-z]+\d+")
_PAYLOAD = re.compile(
    r"\b(?:ld|st|atom|red|cp|mma|wgmma|ldmatrix|stmatrix|mbarrier|prefetch|griddepcontrol)\b(?!\.param)"
)
_BRANCH = re.compile(r"(?:@(!?)(%p\d+)\s+)?bra(?:\.uni)?\s+(\$\w+)")


@dataclass(frozen=True)
class Block:
    """Instructions up to the next branch or branch target; `falls` names the block that follows, if one does."""

    label: str
    instructions: tuple[str, ...]
    falls: str | None


def blocks(ptx: str) -> dict[str, Block]:
    """Return the entry's basic blocks by label, in order; the first is the entry."""
    body = ptx[ptx.index(".visible .entry") :]
    body = body[body.index("{") + 1 : body.index("\n}")]
    lines = [line for raw in body.splitlines() if (line := raw.split("//")[0].strip())]
    lines = [line for line in lines if not re.match(r"\.(loc|reg|file|pragma|shared|local)\b", line)]
    targets = {m[3] for line in lines if (m := _BRANCH.search(line))}
    made: list[tuple[str, list[str]]] = [("entry", [])]
    for line in lines:
        if line.endswith(":"):
            if line[:-1] in targets:
                if not made[-1][1]:
                    made.pop()
                made.append((line[:-1], []))
            continue
        made[-1][1].append(line.rstrip(";"))
        if _BRANCH.search(line) or re.match(r"(?:@!?%p\d+\s+)?(ret|exit|trap)\b", line):
            made.append((f"after {len(made)}", []))
    if len(made) > 1 and not made[-1][1]:
        made.pop()
    names = [name for name, _ in made] + [None]
    found = {}
    for i, (name, instructions) in enumerate(made):
        last = instructions[-1] if instructions else ""
        ends = re.match(r"(ret|exit|trap)\b", last) or re.match(r"bra", last)
        found[name] = Block(name, tuple(instructions), None if ends else names[i + 1])
    return found


def scalar_parameters(ptx: str) -> int:
    """Return how many of the entry's parameters are values, not pointers: a graph captures them."""
    head = ptx[ptx.index(".visible .entry") :]
    parameters = re.findall(r"\.param\s+([^,)]*)", head[: head.index("{")])
    return sum(".ptr" not in p for p in parameters)


def guard_fault(ptx: str) -> str | None:
    """Return what is wrong with the kernel's guard, None if nothing. The plan is the first parameter."""
    graph = blocks(ptx)
    entry = next(iter(graph.values()))
    from_plan: set[str] = set()
    loaded: set[str] = set()
    loads = 0
    for instruction in entry.instructions:
        if _BRANCH.search(instruction):
            break
        registers = _REGISTER.findall(instruction)
        if not registers:
            if _PAYLOAD.search(instruction):
                return f"payload before the guard: {instruction}"
            continue
        result, sources = registers[0], set(registers[1:])
        if re.match(r"ld\.param", instruction):
            if re.search(r"_param_0\b", instruction):
                from_plan.add(result)
        elif re.match(r"ld\.(global|volatile)", instruction):
            loads += 1
            if not sources or not sources <= from_plan:
                return f"a load that is not the plan's before the guard: {instruction}"
            loaded.add(result)
        elif _PAYLOAD.search(instruction):
            return f"payload before the guard: {instruction}"
        else:
            if sources and sources <= from_plan:
                from_plan.add(result)
            if sources & loaded:
                loaded.add(result)
    if loads != 1:
        return f"{loads} loads before the first branch, not one"
    branch = _BRANCH.search(entry.instructions[-1])
    if branch is None or branch[2] is None:
        return "no branch ends the first block"
    if branch[2] not in loaded:
        return f"the first branch does not depend on the plan: {entry.instructions[-1]}"
    if not any(_leaves(graph, label) for label in (branch[3], entry.falls)):
        return "neither way from the first branch leaves without payload"
    return None


def overlap_fault(ptx: str) -> str | None:
    """Return what is wrong with a kernel that may start early: it waits, in the text before its first payload."""
    wait = ptx.find("griddepcontrol.wait")
    if wait < 0:
        return "no wait for the kernel before"
    early = re.search(r"\b(st\.global|cp\.async|wgmma\.mma|mma\.sync|atom|red\.)", ptx[:wait])
    return f"payload before the wait for the kernel before: {early[1]}" if early else None


def _leaves(graph: dict[str, Block], label: str | None) -> bool:
    """Say whether control goes from the block to the kernel's end without a choice and without payload."""
    for block in _straight(graph, label):
        if any(_PAYLOAD.search(i) for i in block.instructions):
            return False
        if block.instructions and block.instructions[-1].startswith(("ret", "exit")):
            return True
    return False


def _straight(graph: dict[str, Block], label: str | None) -> Iterator[Block]:
    seen: set[str] = set()
    while label is not None and label not in seen:
        seen.add(label)
        yield (block := graph[label])
        branch = _BRANCH.search(block.instructions[-1]) if block.instructions else None
        if branch is not None and branch[2] is not None:
            return
        label = branch[3] if branch is not None else block.falls


def counts(ptx: str) -> dict[str, int]:
    """Return how often the entry uses asynchronous copies, tensor core products and two-byte global loads."""
    return {
        "async_copies": len(re.findall(r"\bcp\.async(?:\.bulk\S*|\.c[ag])\b", ptx)),
        "wgmma": len(re.findall(r"\bwgmma\.mma_async", ptx)),
        "mma": len(re.findall(r"\bmma\.sync", ptx)),
        "two_byte_loads": len(re.findall(r"\bld\.global\S*\.[bu]16\b(?!x)", ptx)),
    }
