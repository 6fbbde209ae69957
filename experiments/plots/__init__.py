"""Figures: a module each, `data(...)` pure and tested, `draw(data, axes)` thin; `style` is the one look."""

from __future__ import annotations

from pathlib import Path

FIGURES = (
    "hit_rate",
    "latency_cdf",
    "occupancy",
    "timeline",
    "arms",
    "sweep",
    "speedup",
    "drafting",
    "repeats",
    "region",
)


def render(experiment_dir: Path, figure: str, out: Path) -> Path:
    """Draw one figure of a finished experiment into `out` (.svg, .pdf or .png); return `out`.

    Of a sweep, figures other than `sweep`, `speedup` and `region` show the first point of the axes. Raises InputError
    for an unknown figure or format, and for an experiment that has nothing to show in it.
    """
    from experiments.plots import rendering

    return rendering.render(experiment_dir, figure, out)
