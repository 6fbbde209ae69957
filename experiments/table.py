"""The result table on the terminal: metrics down, arms across, in as many blocks as the width needs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from experiments.columns import Column, shown
from experiments.headline import axes_text

Arm = Mapping[str, Any]
_GAP = "  "


def print_table(summary: Mapping[str, Any], file: TextIO | None = None, width: int | None = None) -> None:
    """Print the table, the headline and the warnings to `file` (standard output by default)."""
    columns = width or shutil.get_terminal_size((120, 24)).columns
    print(format_table(summary, columns), file=file or sys.stdout)


def format_table(summary: Mapping[str, Any], width: int = 120) -> str:
    """Return the table as lines of at most `width` characters where one arm fits that; no last newline."""
    n = len(summary["seeds"])
    lines = [
        f"{summary['name']}: means over {n} seeds; [95 % paired interval of the change against the first arm]"
    ]
    if n < 2:
        lines = [f"{summary['name']}: one seed, so no intervals"]
    for group in summary["groups"]:
        lines.append("")
        if group["axes"]:
            lines.append(f"-- {axes_text(group['axes'])} --")
        done = any(arm["seeds"] for arm in group["arms"])
        lines += _blocks(group["arms"], width) if done else ["no run finished"]
    lines += ["", *summary["headline"]]
    lines += [f"warning: {line}" for line in summary["warnings"]]
    lines += [f"note: {line}" for line in summary["notes"]]
    if summary["failures"]:
        runs = sum(len(a["seeds"]) + len(a["missing"]) for g in summary["groups"] for a in g["arms"])
        lines.append(f"missing: {len(summary['failures'])} of {runs} runs; they are in no number above")
    return "\n".join(lines)


def _blocks(arms: Sequence[Arm], width: int) -> list[str]:
    """Split the arms over blocks that fit the width; a block has at least one arm."""
    columns = shown(arms)
    labels = ["", *[f"{c.label}{f' ({c.unit})' if c.unit else ''}" for c in columns]]
    room = width - max(map(len, labels))
    blocks: list[list[list[str]]] = [[]]
    used = 0
    for arm in arms:
        cells = [_title(arm), *[_cell(c, arm) for c in columns]]
        size = max(map(len, cells)) + len(_GAP)
        if blocks[-1] and used + size > room:
            blocks.append([])
            used = 0
        blocks[-1].append(cells)
        used += size
    lines: list[str] = []
    for i, block in enumerate(blocks):
        lines += [""] if i else []
        lines += _aligned([labels, *block])
    return lines


def _aligned(columns: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in columns]
    rows = [
        [cell.ljust(w) for cell, w in zip(row, widths, strict=True)] for row in zip(*columns, strict=True)
    ]
    rule = ["-" * w for w in widths]
    return [_GAP.join(row).rstrip() for row in (rows[0], rule, *rows[1:])]


def _title(arm: Arm) -> str:
    return f"{arm['name']}{' (offline reference)' if arm['offline_reference'] else ''}"


def _cell(column: Column, arm: Arm) -> str:
    window = arm["windows"]["full"]
    metric = window["metrics"][column.key]
    if metric is None:
        return "-"
    value = column.show_bare(metric["mean"])
    change = window["change"].get(column.key)
    return value if change is None else f"{value}  {column.show_change(change, len(arm['seeds']))}"
