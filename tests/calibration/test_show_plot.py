"""Figures of a profile: the curves are its prices, the bands its draws, the file the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration import catalog
from calibration.__main__ import main
from calibration.show_plot import curves, write_plot

PROFILE = "H200x1--Qwen3-8B--bf16--vllm"


def test_curves_are_the_prices_and_bands_hold_them() -> None:
    profile = catalog.open(PROFILE)
    found = curves(profile)
    decode = next(c for c in found if c.panel == "decode step")
    i = int(np.flatnonzero(decode.x == 256)[0])
    assert decode.y[i] == pytest.approx(profile.step_ps(256, 256, 1024 * 256) / 1e9)
    width = next(c for c in found if c.panel == "verification width")
    assert width.y[0] == 1.0
    assert width.y[-1] == pytest.approx(profile.linear_ps_at(512) / profile.linear_ps_at(1))
    for curve in found:
        assert (curve.low <= curve.high).all()
        assert (curve.low < curve.high).any()


def test_a_profile_of_unknown_error_has_no_band() -> None:
    for curve in curves(replace(catalog.open(PROFILE), error={}, posterior={})):
        assert (curve.low == curve.y).all()
        assert (curve.high == curve.y).all()


def test_the_figure_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    profile = catalog.open(PROFILE)
    write_plot(profile, tmp_path / "a.svg")
    write_plot(profile, tmp_path / "b.svg")
    text = (tmp_path / "a.svg").read_bytes()
    assert text == (tmp_path / "b.svg").read_bytes()
    assert b"<svg" in text


def test_the_command_draws_and_a_wrong_suffix_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", PROFILE, "--plot", str(tmp_path / "p.png")]) == 0
    assert (tmp_path / "p.png").stat().st_size > 10_000
    capsys.readouterr()
    assert main(["show", PROFILE, "--plot", str(tmp_path / "p.pgn")]) == 2
    assert "did you mean '.png'" in capsys.readouterr().err
    assert main(["show", PROFILE, "--plot", str(tmp_path / "none" / "p.png")]) == 2
