"""The loss waterfall: its parts add up, and what is hidden is no more than what could be."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.inputs import WorkloadRef, prepared
from experiments.plots import waterfall
from experiments.plots.output import save
from experiments.plots.style import context, panels
from experiments.waterfall import main, measure
from sim.config import LoadConfig, SimConfig
from sim.worlds import flat_profile
from traces.errors import InputError

PROFILE = flat_profile(20_000_000_000, linear_tokens=(1, 64), linear_ps=(20 * 10**9, 21 * 10**9))


@pytest.mark.parametrize("workload", ["dynbranch_react", "dynbranch_subagent"])
def test_the_parts_of_the_waterfall_add_up(workload: str) -> None:
    load = LoadConfig(loop="open", rate_per_s=0.2, workflows=30)
    found = measure(
        prepared(WorkloadRef(workload), load, 1), PROFILE, SimConfig(load=load, seed=1), 20_000, "always"
    )
    parts = found.uncovered + found.argument + found.unfilled + found.reused + found.filled
    assert parts == pytest.approx(found.overlap)
    assert found.filled == pytest.approx(found.hidden + found.late + found.contention)
    assert 0 <= found.late <= found.filled
    assert 0 < found.hidden <= found.overlap < found.latency


def test_impossible_words_are_refused() -> None:
    for words in (
        ["--seeds", "0"],
        ["--utilisation", "2"],
        ["--gate", "pricd"],
        ["--what"],
        ["--out", "a.gif"],
    ):
        with pytest.raises(InputError):
            main(words)


def test_the_picture_shows_parts_of_the_overlap_that_add_up(tmp_path: Path) -> None:
    load = LoadConfig(loop="open", rate_per_s=0.2, workflows=20)
    config = SimConfig(load=load)
    workload = prepared(WorkloadRef("dynbranch_react"), load, 0)
    found = waterfall.data([("react", [measure(workload, PROFILE, config, 20_000, "always")])])
    assert sum(found.parts[part][0] for part in waterfall.PARTS) == pytest.approx(100)
    assert found.parts["hidden"][0] > 0
    with context():
        figure, axes = panels(waterfall.MOSAIC, waterfall.size(1))
        waterfall.draw(found, axes)
        assert save(figure, tmp_path / "a.svg").stat().st_size > 2000
