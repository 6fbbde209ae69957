"""The figure of changes against the first arm: nothing covers anything, and no interval flattens the rest."""

from __future__ import annotations

from itertools import combinations

import pytest
from matplotlib.text import Text

from experiments.columns import COLUMNS
from experiments.plots import arms
from experiments.plots.style import Look, context, panels
from traces import draws

LONG = "priced(action0=open, action1=fixed, p_star=0.999) + oracle(accuracy=0.9) + subgraph"


def made(
    marks: int, seeds: tuple[int, ...], name: str = "policy", keys: frozenset[str] | None = None
) -> arms.Data:
    looks = [Look(f"{name}{i}", i + 1, offline=i == 1) for i in range(marks)]
    rows: dict[str, list[tuple[str, list[arms.Mark]]]] = {"points": [], "lower": [], "higher": []}
    for column in COLUMNS:
        if column.change == "plain" or (keys is not None and column.key not in keys):
            continue
        here = []
        for look in looks:
            mean = 200 * draws.uniform(7, "arms/mean", look.index, COLUMNS.index(column)) - 100
            half = 10 ** (3 * draws.uniform(7, "arms/half", look.index, COLUMNS.index(column)))
            here.append(arms.Mark(look, mean, mean - half, mean + 9 * half))
        rows["points" if column.change == "points" else column.better].append((column.label, here))
    return arms.Data(rows, name, seeds)


@pytest.mark.parametrize(
    "data",
    [
        made(1, (5,)),
        made(2, (2,), keys=frozenset({"gpu_hit_rate", "workflow_latency_s_mean"})),
        made(2, (4, 5, 128)),
        made(12, (128, 127), LONG),
        made(30, (8,), LONG),
    ],
    ids=["one arm", "few metrics", "every metric", "long names", "many arms"],
)
def test_no_text_of_the_figure_covers_another_or_leaves_the_page(data: arms.Data) -> None:
    with context():
        figure, axes = panels(arms.MOSAIC, arms.SIZE, **arms.RATIOS)
        arms.draw(data, axes)
        figure.canvas.draw()
        texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
        boxes = [(t.get_text(), t.get_window_extent()) for t in texts]
        page = figure.bbox
    # Ticks beyond an axis' ends have labels too, which are not drawn.
    shown = [(text, box) for text, box in boxes if not text.replace("−", "").replace(".", "").isdigit()]
    assert len(shown) > 2 + len(data.rows["lower"])
    for text, box in shown:
        assert page.x0 <= box.x0 <= box.x1 <= page.x1, text
        assert page.y0 <= box.y0 <= box.y1 <= page.y1, text
    for (a, one), (b, two) in combinations(shown, 2):
        assert not one.overlaps(two), (a, b)


def test_an_axis_shows_zero_and_all_means_but_no_interval_that_would_flatten_them() -> None:
    look = Look("a", 1)
    usual = [arms.Mark(look, m, m - 2, m + 2) for m in (-9.0, 1.0, 4.0)]
    low, high = arms.reach(usual)
    assert low < -11 < 6 < high < 8
    low, high = arms.reach([*usual, arms.Mark(look, 5.0, -40.0, 1e6)])
    assert -40 < low < -11
    assert 7 < high < 40
    low, high = arms.reach([arms.Mark(look, 300.0, None, None)])
    assert low < 0 < 300 < high


def test_intervals_around_changes_of_nothing_are_shown_in_full() -> None:
    look = Look("a", 1)
    low, high = arms.reach([arms.Mark(look, 0.01 * i, -3.0 + i, 3.0) for i in range(3)])
    assert low < -3
    assert high > 3


def test_an_interval_beyond_the_panel_ends_in_a_triangle_at_its_edge() -> None:
    look = Look("a", 1)
    cells = [arms.Mark(look, 1.0, 0.5, 1.5), arms.Mark(look, 2.0, 1.0, 3.0), arms.Mark(look, 2.0, -1e4, 1e5)]
    rows = {"points": [], "higher": [], "lower": [(f"m{i}", [m]) for i, m in enumerate(cells)]}
    with context():
        _, axes = panels(arms.MOSAIC, arms.SIZE, **arms.RATIOS)
        arms.draw(arms.Data(rows, "base", (3,)), axes)
    ends = [
        (line.get_marker(), *line.get_xydata()[0])
        for line in axes["lower"].lines
        if line.get_marker() in "<>"
    ]
    left, right = axes["lower"].get_xlim()
    assert ends == [("<", left, 2.0), (">", right, 2.0)]
    assert -1e4 < left < 0 < 3 < right < 1e5
