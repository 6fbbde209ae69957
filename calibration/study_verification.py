"""Verification width: t(n)/t(1) of profiles against the public curves, and the knee with its interval.

The curves hold the multiplies and the LM head, no attention; the profiles were fitted on whole steps of other shapes
and, for the error below, on other models. The knee is the widest step that costs at most 1.2 times one token.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibration import build, posterior
from calibration import constants as data
from calibration.verification import KNEE, knee, knee_of_points, relative
from calibration.verify_curves import verify_curves

WIDTHS = (64, 128, 160, 192, 256, 512, 1024)


def study() -> list[dict[str, Any]]:
    """Return one object a public curve: t(n)/t(1) measured and of the profile, error, knees with a 90 % interval."""
    out = []
    for curve in verify_curves():
        profile = build.build(build.Cell(curve.gpu.key, 1, curve.model, curve.precision))
        measured = dict(zip(curve.tokens.tolist(), curve.times_one().tolist(), strict=True))
        low, high = posterior.interval(
            [knee(posterior.draw(profile, i)) for i in range(posterior.draws(profile))]
        )
        key = f"{curve.gpu.tables}:{curve.precision}"
        out.append(
            {
                "gpu": curve.gpu.key,
                "model": curve.model,
                "precision": curve.precision,
                "measured": [round(measured[n], 2) for n in WIDTHS],
                "profile": [round(v, 2) for v in relative(profile, WIDTHS)],
                "held_out_error": data.read("kernel_fit")["keys"][key]["errors"][curve.model]["1"]["verify"],
                "knee_measured": round(knee_of_points(curve.tokens.tolist(), curve.times_one().tolist())),
                "knee_profile": knee(profile),
                "knee_interval": [int(np.floor(low)), int(np.ceil(high))],
            }
        )
    return out


def text(points: list[dict[str, Any]]) -> str:
    """Return the table for people."""
    lines = [
        "t(n)/t(1) of a step without context: public curve / profile; knee: widest step at most "
        f"{KNEE:g} times one token, tokens",
        f"{'':24}" + "".join(f"{n:>12}" for n in WIDTHS) + f"{'held out':>10}{'knee':>20}",
    ]
    for p in points:
        cells = "".join(f"{m:>6.2f}/{f:<5.2f}" for m, f in zip(p["measured"], p["profile"], strict=True))
        low, high = p["knee_interval"]
        lines.append(
            f"{p['gpu']:5}{p['model']:11}{p['precision']:8}{cells}{p['held_out_error']['mape_percent']:>8} %"
            f"{p['knee_measured']:>7}/{p['knee_profile']} [{low}, {high}]"
        )
    return "\n".join(lines)
