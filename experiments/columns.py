"""The columns of the result table: which metrics, how they are shown, and how a change in them is stated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Change = Literal["percent", "points", "plain"]
Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Column:
    """One metric of `traces.definitions` as the table shows it.

    change  percent: log-ratio over paired seeds, for times and rates; points: difference of two shares, in
            percentage points; plain: difference in the metric's own unit, for counts
    scale   multiplies the metric for display (100 for shares)
    rare    left out of tables in which it says nothing for every arm: 0, no value, or (latency less waits) latency
    """

    key: str
    label: str
    unit: str
    better: Better
    change: Change
    scale: float = 1.0
    rare: bool = False

    @property
    def change_unit(self) -> str:
        """Unit of the stated change."""
        return {"percent": "%", "points": "pt", "plain": self.unit}[self.change]

    def show(self, value: float | None) -> str:
        """Return a value with its unit, three significant digits; "-" for none.

        >>> by_key("gpu_hit_rate").show(0.6213), by_key("completed").show(12345.0)
        ('62.1 %', '12345')
        """
        text = self.show_bare(value)
        return f"{text} {self.unit}" if self.unit and value is not None else text

    def show_bare(self, value: float | None) -> str:
        """Return a value without its unit; "-" for none."""
        if value is None:
            return "-"
        if self.change == "points":
            return f"{value * self.scale:.1f}"
        return digits(value * self.scale)

    def show_change(self, change: Mapping[str, Any], seeds: int) -> str:
        """Return a change (an interval of the summary) with its unit and bounds, "same" where all are 0.

        seeds: those the arm has; where fewer could be paired (no value of the metric in some), it says so.

        >>> by_key("ttft_ms_p99").show_change({"mean": -3.4, "low": -3.9, "high": -2.9, "n": 4}, 5)
        '-3.4 % [-3.9, -2.9] (4 of 5 seeds)'
        """
        mean, low, high = change["mean"], change["low"], change["high"]
        partial = f" ({change['n']} of {seeds} seeds)" if change["n"] < seeds else ""
        if mean == 0 and not low and not high:
            return f"same{partial}"
        text = f"{signed(mean)} {self.change_unit}".rstrip()
        return text + partial if low is None else f"{text} [{signed(low)}, {signed(high)}]{partial}"


def digits(value: float, significant: int = 3) -> str:
    """Return a number with `significant` digits and no exponent; whole numbers keep all theirs.

    >>> digits(0.04567), digits(12.345), digits(98765.4), digits(0.0)
    ('0.0457', '12.3', '98765', '0')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:.0f}"
    places = significant - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(places, 0), 12)}f}"


def signed(value: float) -> str:
    """Return a change with its sign: two decimals below 1, one below 100.

    >>> signed(-4.234), signed(0.1234), signed(250.4), signed(-0.0001)
    ('-4.2', '+0.12', '+250', '0.00')
    """
    size = abs(value)
    text = f"{value:+.{2 if size < 1 else 1 if size < 100 else 0}f}"
    return text[1:] if float(text) == 0 else text


COLUMNS: tuple[Column, ...] = (
    Column("gpu_hit_rate", "GPU hit rate", "%", "higher", "points", 100.0),
    Column("host_hit_rate", "host hit rate", "%", "higher", "points", 100.0),
    Column("ttft_ms_p50", "TTFT p50", "ms", "lower", "percent"),
    Column("ttft_ms_p99", "TTFT p99", "ms", "lower", "percent"),
    Column("tpot_ms_mean", "TPOT mean", "ms", "lower", "percent"),
    Column("itl_ms_p99", "ITL p99", "ms", "lower", "percent"),
    Column("workflow_latency_s_mean", "workflow latency mean", "s", "lower", "percent"),
    Column("workflow_latency_s_p99", "workflow latency p99", "s", "lower", "percent"),
    Column("workflow_work_s_mean", "latency less waits mean", "s", "lower", "percent", rare=True),
    Column("slo_goodput", "SLO goodput", "req/s", "higher", "percent"),
    Column("workflows_completed", "workflows completed", "", "higher", "plain"),
    Column("workflows_unfinished", "workflows unfinished", "", "lower", "plain"),
    Column("completed", "requests completed", "", "higher", "plain"),
    Column("incomplete", "requests incomplete", "", "lower", "plain"),
    Column("rejected", "requests rejected", "", "lower", "plain"),
    Column("requests_never_issued", "requests never issued", "", "lower", "plain"),
    Column("branches_opened", "branches drafted for", "", "lower", "plain", rare=True),
    Column("drafting_s", "drafting", "s", "lower", "plain", rare=True),
    Column("fills", "fills", "", "lower", "plain", rare=True),
    Column("promoted_stages", "stages promoted", "", "higher", "plain", rare=True),
    Column("reused_stages", "stages reused", "", "higher", "plain", rare=True),
    Column("fill_gpu_s", "fill residence", "s", "lower", "plain", rare=True),
    Column("fill_step_s", "fill share of steps", "s", "lower", "plain", rare=True),
    Column("fill_discarded_share", "fill time discarded", "%", "lower", "points", 100.0, rare=True),
    Column("fill_unselected_share", "fill time unselected", "%", "lower", "points", 100.0, rare=True),
)
HEADLINE = "workflow_latency_s_mean"


def shown(arms: Sequence[Mapping[str, Any]], window: str = "full") -> list[Column]:
    """Return the columns that a table of these arms (of the summary) shows."""

    def means(key: str) -> list[float]:
        found = [arm["windows"][window]["metrics"].get(key) for arm in arms]
        return [0.0 if metric is None else metric["mean"] for metric in found]

    def happens(column: Column) -> bool:
        if column.key == "workflow_work_s_mean":
            return means(column.key) != means(HEADLINE)
        return any(means(column.key))

    return [c for c in COLUMNS if not c.rare or happens(c)]


def by_key(key: str) -> Column:
    """Return the column of a metric; KeyError for a metric the table does not show."""
    return {c.key: c for c in COLUMNS}[key]
