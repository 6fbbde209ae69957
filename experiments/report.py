"""The report: one HTML file that opens without a server, reads in light and dark, and loads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from experiments import report_sections as sections
from experiments import report_table
from experiments.plan import Plan
from experiments.plots.rendering import report_figures, sweep_figures
from experiments.plots.source import looks
from experiments.plots.style import PALETTE, PALETTE_DARK
from experiments.report_html import Html, details, join, prose, tag, text
from experiments.store import Store, write_whole

REPORT = "report.html"
# Points of a sweep that get figures over time, and tables; every number of the others is in summary.json.
MAX_FIGURE_POINTS, MAX_TABLE_POINTS = 3, 20


def write_report(plan: Plan, summary: Mapping[str, Any], store: Store, directory: Path) -> Path:
    """Write `report.html` into `directory`, whole or not at all; return its path."""
    path = directory / REPORT
    write_whole(path, render_report(plan, summary, store))
    return path


def render_report(plan: Plan, summary: Mapping[str, Any], store: Store) -> str:
    """Return the report as HTML text."""
    title = f"Foreserve: {summary['name']}"
    body = tag(
        "main",
        tag("h1", text(title)),
        tag("p", prose(summary["headline"][0]), class_="headline"),
        *[tag("p", prose(line), class_="second") for line in summary["headline"][1:]],
        sections.facts(summary),
        sections.warnings(summary),
        _results(plan, summary, store),
        sections.failures(summary),
        sections.timing(summary),
        sections.workload(summary),
        sections.config(summary),
        sections.definitions(summary),
        sections.reproduce(summary),
    )
    style = (files("experiments") / "templates" / "report.css").read_text(encoding="utf-8") + _arm_colors()
    head = join(
        [
            Html('<meta charset="utf-8">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            tag("title", text(title)),
            Html(f"<style>\n{style}</style>"),
        ]
    )
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _results(plan: Plan, summary: Mapping[str, Any], store: Store) -> Html:
    groups = summary["groups"]
    parts = [_figure(*f) for f in sweep_figures(plan, summary)]
    drawn = _ends_and_middle(len(groups))
    for i, group in enumerate(groups[:MAX_TABLE_POINTS]):
        parts.append(tag("h2", text(sections.point_title(group["axes"]))))
        if not any(arm["seeds"] for arm in group["arms"]):
            parts.append(tag("p", text("No run finished.")))
            continue
        parts.append(_tables(plan, group))
        if i in drawn:
            parts += [_figure(*f) for f in report_figures(plan, store, summary, group["axes"], f"p{i}-")]
    left = len(groups) - MAX_TABLE_POINTS
    if left > 0:
        parts.append(tag("p", text(f"{left} more points of the sweep are in summary.json."), class_="dim"))
    return join(parts)


def _tables(plan: Plan, group: Mapping[str, Any]) -> Html:
    colors = {name: look.index % len(PALETTE) for name, look in looks(plan).items()}
    note = "Small print: change against the first arm and its 95 % paired interval; under the first arm, the "
    return join(
        [
            report_table.results(group, colors),
            tag("p", prose(note + "95 % interval of its own mean."), class_="dim"),
            details(
                "steady state only (warm-up and drain cut)", report_table.results(group, colors, "steady")
            ),
            details("every seed, and percentiles pooled over seeds", report_table.per_seed(group)),
        ]
    )


def _figure(title: str, svg: str, caption: str) -> Html:
    label = join([tag("b", text(f"{title}.")), text(f" {caption}")], "")
    return tag("figure", Html(svg), tag("figcaption", label))


def _ends_and_middle(n: int) -> set[int]:
    """Indices of the points that get figures over time."""
    shown = min(n, MAX_TABLE_POINTS)
    return set(range(shown)) if shown <= MAX_FIGURE_POINTS else {0, shown // 2, shown - 1}


def _arm_colors() -> str:
    light, dark = (
        " ".join(f"--arm{i}: {c};" for i, c in enumerate(colors)) for colors in (PALETTE, PALETTE_DARK)
    )
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
