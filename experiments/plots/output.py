"""Figures as files and as parts of a page, the same bytes every time."""

from __future__ import annotations

import io
import re
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from experiments.plots.style import FORMATS, INK, MUTED, PALETTE, RULE
from traces.errors import InputError, nearest


def save(figure: Figure, out: Path) -> Path:
    """Write the figure as .svg, .pdf or .png, the same bytes for the same figure; return `out`.

    Raises InputError for another suffix or a place that cannot be written.
    """
    kind = check_suffix(out)
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "path"}):
        figure.savefig(buffer, format=kind, metadata=_undated(kind), facecolor="white")
    try:
        out.write_bytes(buffer.getvalue())
    except OSError as e:
        raise InputError(f"{out}: {e.strerror}") from None
    return out


def check_suffix(out: Path) -> str:
    """Return the format that the file's suffix names; InputError for one that figures do not have."""
    kind = out.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise InputError(f"{out}: {nearest(kind, FORMATS, what='figure format')}")
    return kind


def inline_svg(figure: Figure, prefix: str, title: str) -> str:
    """Return the figure as an <svg> element whose colours are the page's CSS variables.

    prefix makes ids unique in the page. title is what a screen reader says; it is escaped here.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_undated("svg"), transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r"url\(#", f"url(#{prefix}-", text)
    text = re.sub(r'href="#', f'href="#{prefix}-', text)
    for color, variable in css_variables().items():
        text = text.replace(color, f"var({variable})")
    # The page's own font: matplotlib writes its family alone or, in other versions, within the shorthand.
    text = re.sub(r"font-family: [^;\"]*; ?", "", text)
    text = re.sub(r"font: ((?:bold |\d+ )?)([0-9.]+px) [^;\"]*", _font, text)
    width_height = re.compile(r'\s(?:width|height)="[0-9.]+pt"')
    head, rest = text.split(">", 1)
    label = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return f'{width_height.sub("", head)} role="img" aria-label="{label}">{rest}'


def _font(found: re.Match[str]) -> str:
    weight = found[1].strip()
    return (f"font-weight: {weight}; " if weight else "") + f"font-size: {found[2]}"


def css_variables() -> dict[str, str]:
    """Return the colours that `inline_svg` turns into CSS variables, hex to name."""
    names = {INK: "--ink", MUTED: "--muted", RULE: "--rule"}
    return names | {color: f"--arm{i}" for i, color in enumerate(PALETTE)}


def _undated(kind: str) -> dict[str, None]:
    if kind == "svg":
        return {"Date": None, "Creator": None}
    if kind == "pdf":
        return {"CreationDate": None, "Creator": None, "Producer": None}
    return {"Software": None}
