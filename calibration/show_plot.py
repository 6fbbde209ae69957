"""One profile in four curves, each with the range of its draws: what `show --plot FILE` draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from calibration import posterior, uncertainty
from policies.costs import Profile
from traces.errors import InputError, nearest

FORMATS = (".svg", ".png", ".pdf")
_DRAWS = 40
_COLOR = ("#0072b2", "#d55e00", "#00875f")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One line of a panel: x float64[N], y float64[N], and the 90 % range of the draws (equal to y without any)."""

    panel: str
    label: str
    x_label: str
    y_label: str
    x: Floats
    y: Floats
    low: Floats
    high: Floats


def curves(profile: Profile) -> list[Curve]:
    """Return the curves of a profile: decode by batch, prefill and verification by tokens, KV by context."""
    bare = replace(profile, overhead_ps=0, overhead_per_seq_ps=0)
    drawn = _drawn(profile)
    batches = np.unique(np.geomspace(1, 256, 33).round())
    tokens = np.unique(np.geomspace(16, 16384, 41).round())
    widths = np.arange(1.0, 513.0)
    spans = np.linspace(0, profile.max_model_len, 33)

    def decode(context: int) -> Callable[[Profile, int], float]:
        return lambda p, b: p.step_ps(b, b, context * b) / 1e9

    def prefill(p: Profile, n: int) -> float:
        return p.step_ps(n, 1, 0, n * n // 2) / 1e9

    def width(p: Profile, n: int) -> float:
        return p.linear_ps_at(n) / p.linear_ps_at(1)

    def reading(p: Profile, context: int) -> float:
        return p.step_ps(1, 1, context) / 1e9

    made = [
        _curve(
            "decode step", f"{c:,} tokens of context", "sequences", "ms", batches, profile, drawn, decode(c)
        )
        for c in (1024, 8192)
        if c < profile.max_model_len
    ]
    made.append(_curve("prefill step", "engine included", "tokens", "ms", tokens, profile, drawn, prefill))
    kernels = [replace(d, overhead_ps=0, overhead_per_seq_ps=0) for d in drawn]
    label = "linear layers, t(n)/t(1)"
    made.append(
        _curve("verification width", label, "tokens of the step", "times one", widths, bare, kernels, width)
    )
    made.append(
        _curve("one sequence", "decode step", "tokens of context", "ms", spans, profile, drawn, reading)
    )
    return made


def write_plot(profile: Profile, path: Path) -> None:
    """Write the curves to an SVG, PNG or PDF file; the same bytes for the same profile.

    Raises InputError for another suffix and for a place that cannot be written.
    """
    if path.suffix not in FORMATS:
        raise InputError(nearest(path.suffix or path.name, FORMATS, what="--plot suffix"))
    found = curves(profile)
    panels = list(dict.fromkeys(c.panel for c in found))
    with mpl.rc_context({"svg.hashsalt": profile.name, "font.size": 8.0}):
        figure = Figure(figsize=(7.0, 5.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = dict(zip(panels, figure.subplots(2, 2).flat, strict=True))
        for panel, ax in axes.items():
            for curve, color in zip([c for c in found if c.panel == panel], _COLOR, strict=False):
                ax.plot(curve.x, curve.y, color=color, linewidth=1.2, label=curve.label)
                ax.fill_between(curve.x, curve.low, curve.high, color=color, alpha=0.2, linewidth=0)
                ax.set(title=panel, xlabel=curve.x_label, ylabel=curve.y_label)
            if panel == "prefill step":
                ax.set(xscale="log", yscale="log")
                ax.xaxis.set_major_formatter("{x:g}")
                ax.yaxis.set_major_formatter("{x:g}")
            else:
                ax.set_ylim(bottom=0)
            ax.legend(frameon=False, fontsize=7)
        figure.suptitle(f"{profile.name} ({profile.identity['timing']}){_band_text(profile)}", fontsize=8)
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as e:
            raise InputError(f"--plot {path}: {e.strerror}") from None


def _curve(
    panel: str, label: str, x_label: str, y_label: str, x: Floats, profile: Profile, drawn: list[Profile],
    price: Callable[[Profile, int], float],
) -> Curve:  # fmt: skip
    y = np.array([price(profile, int(v)) for v in x])
    low = high = y
    if drawn:
        under = np.array([[price(d, int(v)) for v in x] for d in drawn])
        low, high = posterior.interval(under)
    return Curve(panel, label, x_label, y_label, x.astype(np.float64), y, low, high)


def _drawn(profile: Profile) -> list[Profile]:
    """Return draws of the profile, none where nothing is known of its error."""
    count = posterior.draws(profile) or _DRAWS
    try:
        return [uncertainty.draw(profile, i) for i in range(min(count, _DRAWS))]
    except InputError:
        return []


def _band_text(profile: Profile) -> str:
    if posterior.draws(profile):
        return "; shaded: 90 % of its posterior draws"
    return "; shaded: 90 % of draws from its stated error" if _drawn(profile) else "; its error is not stated"
