"""The result table of the report: metrics down, arms across, each change with its paired interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.columns import Column, shown
from experiments.headline import ALPHA
from experiments.report_html import Html, join, table, tag, text

Group = Mapping[str, Any]


def results(group: Group, colors: Mapping[str, int], window: str = "full") -> Html:
    """Return the table of one point of the axes; colors: arm name -> its place in the palette."""
    head = [Html(""), *[_head(a, colors) for a in group["arms"]]]
    rows = [[_label(c), *[_cell(c, a, window) for a in group["arms"]]] for c in shown(group["arms"], window)]
    return table(head, rows, class_="results")


def per_seed(group: Group, window: str = "full") -> Html:
    """Return every seed's value of every metric of the table, and pooled percentiles."""
    seeds = sorted({s for a in group["arms"] for s in a["seeds"]})
    rows = [
        [
            text(f"{c.label}{f' ({c.unit})' if c.unit else ''}"),
            text(a["name"]),
            *_seed_cells(c, a, seeds, window),
        ]
        for c in shown(group["arms"], window)
        for a in group["arms"]
    ]
    return table([text("metric"), text("arm"), *[text(f"seed {s}") for s in seeds], text("pooled")], rows)


def _seed_cells(column: Column, arm: Mapping[str, Any], seeds: Sequence[int], window: str) -> list[Html]:
    metric = arm["windows"][window]["metrics"][column.key] or {"per_seed": {}}
    values = [metric["per_seed"].get(str(s)) for s in seeds]
    return [text(column.show_bare(v)) for v in (*values, metric.get("pooled"))]


def _head(arm: Mapping[str, Any], colors: Mapping[str, int]) -> Html:
    swatch = tag("span", class_="key", style=f"background: var(--arm{colors[arm['name']]})")
    n = len(arm["seeds"])
    lines = [f"{n} seed{'' if n == 1 else 's'}"]
    if arm["offline_reference"]:
        lines.insert(0, "offline reference")
    return join([swatch, text(arm["name"]), *[tag("small", text(line)) for line in lines]], "")


def _label(column: Column) -> Html:
    better = f"{column.better} is better"
    return join([text(column.label), tag("small", text(better))], "")


def _cell(column: Column, arm: Mapping[str, Any], window: str) -> Html:
    metric = arm["windows"][window]["metrics"][column.key]
    if metric is None:
        return text("-")
    parts = [text(column.show(metric["mean"]))]
    change = arm["windows"][window]["change"].get(column.key)
    if change is not None:
        parts.append(
            tag("small", text(column.show_change(change, len(arm["seeds"]))), class_=verdict(column, change))
        )
        parts.append(_calibrated(change, lambda c: column.show_change(c, c["n"])))
    elif metric["low"] is not None and column.change != "plain":
        low, high = column.show_bare(metric["low"]), column.show_bare(metric["high"])
        parts.append(tag("small", text(f"{low} to {high}")))
        parts.append(
            _calibrated(metric, lambda m: f"{column.show_bare(m['low'])} to {column.show_bare(m['high'])}")
        )
    return join(parts, "")


def _calibrated(estimate: Mapping[str, Any], show: Callable[[Mapping[str, Any]], str]) -> Html:
    """Return the line with calibration error included, nothing where no profile was drawn."""
    found = estimate.get("calibrated")
    return Html("") if found is None else tag("small", text(f"calibration too: {show(found)}"))


def verdict(column: Column, change: Mapping[str, Any]) -> str:
    """Return better or worse where Holm's p is below 5 % over the arms, else unsure.

    Where profiles were drawn it is the p-value that includes calibration error.
    """
    p = (change.get("calibrated") or change)["p_holm"]
    if p is None or p >= ALPHA or change["mean"] == 0:
        return "unsure"
    return "better" if (change["mean"] > 0) == (column.better == "higher") else "worse"
