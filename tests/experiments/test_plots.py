from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_runs import KV_BLOCKS, Effect, make, tables

from experiments.plots import FIGURES, arms, hit_rate, latency_cdf, occupancy, render, sweep
from experiments.plots.labels import spread
from experiments.plots.output import css_variables, inline_svg
from experiments.plots.rendering import OVER_TIME
from experiments.plots.source import ArmRuns, load_arms, looks, over_seeds
from experiments.plots.style import PALETTE, PALETTE_DARK, Look, context, panels
from experiments.summary import summarise, write_summary
from traces.errors import InputError
from traces.metrics import ttft_ms, workflow_latency_s
from traces.runlog import from_tables

ARMS = {"lru": Effect(0.4), "lifecycle": Effect(0.5, 0.95), "belady_leaf": Effect(0.6, 0.9)}
SEEDS = (0, 1, 2)
OWN = ("speedup", "drafting", "repeats", "region")  # test_drafting_plots, test_region_plot
OWN = ("speedup", "drafting", "repeats", "region")  # test_drafting_plots, test_region_plot


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    plan, store = make(tmp_path_factory.mktemp("store"), ARMS, seeds=SEEDS)
    summary = summarise(plan, store)
    write_summary(summary, store.experiment_dir(plan))
    return plan, store, summary


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    axes = {"load.concurrency": [32, 8]}
    plan, store = make(tmp_path_factory.mktemp("sweep"), ARMS, seeds=(0, 1), axes=axes)
    summary = summarise(plan, store)
    write_summary(summary, store.experiment_dir(plan))
    return plan, store, summary


def test_hit_rate_bins_add_up_to_the_hit_rate_of_the_run(made: Any) -> None:
    plan, store, _ = made
    arm = load_arms(plan, store)[1]
    one = hit_rate.data([ArmRuns(arm.look, arm.seeds[:1], arm.runs[:1])])
    ((_, mean, low, _),) = one.curves
    time, hit, prompt = arm.runs[0].columns("requests", "admitted_ns", "gpu_hit_tokens", "prompt_tokens")
    width = 2 * one.mid_s[0] * 1e9
    in_bin = np.array([prompt[(time // width).astype(int) == b].sum() for b in range(len(mean))])
    assert np.nansum(mean * in_bin) == pytest.approx(hit.sum())
    assert np.isnan(low).all()


def test_hit_rate_mean_lies_in_its_band_and_a_bin_without_requests_is_a_gap() -> None:
    mean, low, high = over_seeds(np.array([[0.5, 0.2, np.nan], [0.7, 0.2, 0.5]]))
    assert mean[:2] == pytest.approx([0.6, 0.2])
    # t(0.975, 1) = 12.7062, s/sqrt(2) = 0.1
    assert (low[0], high[0]) == pytest.approx((0.6 - 1.27062, 0.6 + 1.27062), rel=1e-5)
    assert np.isnan([mean[2], low[2], high[2]]).all()


def test_latency_curves_are_quantiles_of_the_pooled_samples(made: Any) -> None:
    plan, store, _ = made
    found = load_arms(plan, store)
    data = latency_cdf.data(found)
    for panel, read in (
        ("time to first token", lambda r: ttft_ms(r) / 1000),
        ("workflow latency", workflow_latency_s),
    ):
        for arm, (look, curve, n) in zip(found, data.curves[panel], strict=True):
            pooled = np.concatenate([read(run) for run in arm.runs])
            assert (look, n) == (arm.look, len(pooled))
            assert (curve[0], curve[-1]) == (pooled.min(), pooled.max())
            at_median = int(np.searchsorted(latency_cdf.SHARES, 0.5))
            assert np.mean(pooled <= curve[at_median]) >= 0.5
            assert np.all(np.diff(curve) >= 0)


def test_occupancy_is_the_time_average_of_the_steps(made: Any) -> None:
    plan, store, _ = made
    arm = load_arms(plan, store)[0]
    data = occupancy.data([ArmRuns(arm.look, arm.seeds[:1], arm.runs[:1], KV_BLOCKS)])
    duration, decode, prefill, start = arm.runs[0].columns(
        "steps", "duration_ns", "decode_seqs", "prefill_seqs", "start_ns"
    )
    end_ns = 2 * data.mid_s[0] * occupancy.BINS * 1e9
    inside = np.clip(end_ns - start, 0, duration)
    assert data.curves["running"][0][1].mean() == pytest.approx((inside * (decode + prefill)).sum() / end_ns)
    assert data.shares
    resident = data.curves["resident"][0][1]
    assert resident.max() <= 1.0
    assert np.all(resident >= data.curves["active"][0][1])


def test_occupancy_without_a_known_pool_is_in_blocks() -> None:
    run = from_tables(tables(0, Effect()))
    known, unknown = (occupancy.data([ArmRuns(Look("a", 0), (0,), (run,), n)]) for n in (KV_BLOCKS, 0))
    assert not unknown.shares
    assert unknown.curves["active"][0][1] == pytest.approx(KV_BLOCKS * known.curves["active"][0][1])


def test_arm_marks_are_the_changes_of_the_summary(made: Any) -> None:
    plan, _, summary = made
    data = arms.data(summary["groups"][0], looks(plan))
    assert [label for label, _ in data.rows["points"]] == ["GPU hit rate", "host hit rate"]
    (row,) = (marks for label, marks in data.rows["lower"] if label == "TTFT p99")
    assert [m.look.label for m in row] == ["lifecycle", "belady_leaf"]
    want = summary["groups"][0]["arms"][1]["windows"]["full"]["change"]["ttft_ms_p99"]
    assert (row[0].mean, row[0].low, row[0].high) == (want["mean"], want["low"], want["high"])
    assert data.baseline == "lru"
    assert set(data.seeds) == {3}


def test_sweep_curves_ascend_along_the_axis_and_keep_their_intervals(swept: Any) -> None:
    plan, _, summary = swept
    data = sweep.data(summary["groups"], looks(plan))
    assert (data.axis, data.values, data.numeric) == ("load.concurrency", [8, 32], True)
    for key, curves in data.curves.items():
        for look, mean, low, high in curves:
            groups = summary["groups"][::-1]  # the plan lists 32 first
            metrics = [next(a for a in g["arms"] if a["name"] == look.label) for g in groups]
            scale = 100 if key == "gpu_hit_rate" else 1
            want = [scale * m["windows"]["full"]["metrics"][key]["mean"] for m in metrics]
            assert mean == pytest.approx(want)
            assert np.all((low <= mean) & (mean <= high))


def test_two_axes_make_one_figure_a_value_of_the_shorter_one() -> None:
    groups = [{"axes": {"a": a, "b": b}} for a in (1, 2, 3) for b in ("x", "y")]
    assert sweep.axis_of(groups) == "a"
    assert sweep.slices(groups) == [{"b": "x"}, {"b": "y"}]
    assert sweep.axis_of([{"axes": {}}]) is None


def test_an_arm_keeps_its_colour_over_figures_and_points(swept: Any) -> None:
    plan, store, summary = swept
    found = looks(plan)
    assert [(k, v.index) for k, v in found.items()] == [("lru", 0), ("lifecycle", 1), ("belady_leaf", 2)]
    assert found["belady_leaf"].offline
    for point in plan.axis_points():
        assert [a.look for a in load_arms(plan, store, point)] == list(found.values())
    assert [m.look for _, row in arms.data(summary["groups"][1], found).rows["points"] for m in row[:1]] == [
        found["lifecycle"]
    ] * 2


@pytest.mark.parametrize("figure", [f for f in FIGURES if f not in ("sweep", *OWN)])
def test_a_figure_is_the_same_bytes_every_time(made: Any, tmp_path: Path, figure: str) -> None:
    plan, store, _ = made
    directory = store.experiment_dir(plan)
    first, second = (render(directory, figure, tmp_path / f"{i}.svg").read_bytes() for i in (1, 2))
    assert first == second
    assert first.startswith(b"<?xml")


@pytest.mark.parametrize(("kind", "magic"), [("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_figures_come_in_the_format_that_the_suffix_names(
    swept: Any, tmp_path: Path, kind: str, magic: bytes
) -> None:
    plan, store, _ = swept
    out = render(store.experiment_dir(plan), "sweep", tmp_path / f"f.{kind}")
    assert out.read_bytes().startswith(magic)
    again = render(store.experiment_dir(plan), "sweep", tmp_path / f"g.{kind}")
    assert out.read_bytes() == again.read_bytes()


@pytest.mark.parametrize(
    ("figure", "out", "line"),
    [
        ("hit_rat", "f.svg", "unknown figure 'hit_rat'; did you mean 'hit_rate'?"),
        ("hit_rate", "f.pgn", "unknown figure format 'pgn'; did you mean 'png'?"),
        ("hit_rate", "none/f.svg", "none/f.svg: No such file or directory"),
        ("sweep", "f.svg", "figure sweep: main sweeps no option"),
    ],
)
def test_what_cannot_be_drawn_is_one_clear_line(
    made: Any, tmp_path: Path, figure: str, out: str, line: str
) -> None:
    plan, store, _ = made
    with pytest.raises(InputError, match=re.escape(line)) as e:
        render(store.experiment_dir(plan), figure, tmp_path / out)
    assert "\n" not in str(e.value)
    assert list(tmp_path.iterdir()) == []


def test_a_figure_of_nothing_is_refused(tmp_path: Path) -> None:
    plan, store = make(tmp_path, ARMS, seeds=(0,), missing=tuple((a, 0) for a in ARMS))
    with pytest.raises(InputError, match="no complete run"):
        render(store.experiment_dir(plan), "occupancy", tmp_path / "f.svg")


@pytest.mark.parametrize("name", sorted(OVER_TIME))
def test_figures_over_time_bear_runs_that_served_nothing(name: str) -> None:
    empty = from_tables({})
    module = OVER_TIME[name]
    data = module.data([ArmRuns(Look("a", 0), (0,), (empty,), 10)])
    with context():
        figure, axes = panels(module.MOSAIC, module.SIZE)
        module.draw(data, axes)
        assert inline_svg(figure, "x", "t").startswith("<svg")


def test_inline_figures_take_their_colours_from_the_page() -> None:
    with context():
        figure, axes = panels((("p",),), (3.0, 2.0))
        for look in (Look(f"arm{i}", i) for i in range(len(PALETTE))):
            axes["p"].plot([0, 1], [look.index, 1], color=look.color, label=look.name)
        axes["p"].set_title("in ink")
        svg = inline_svg(figure, "fig", 'a "title" & <more>')
    for color, variable in css_variables().items():
        assert color not in svg
        assert f"var({variable})" in svg
    assert 'aria-label="a &quot;title&quot; &amp; &lt;more>"' in svg
    assert 'id="fig-' in svg
    assert "url(#fig-" in svg
    assert "DejaVu" not in svg


def test_labels_are_shown_as_they_are() -> None:
    with context():
        figure, axes = panels((("p",),), (3.0, 2.0))
        axes["p"].set_title(Look("a$b_{1}$ <i>", 0).name)
        svg = inline_svg(figure, "f", "t")
    assert "a$b_{1}$ &lt;i&gt;" in svg


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("palette", "page"), [(PALETTE, "#ffffff"), (PALETTE_DARK, "#14171a")])
def test_every_arm_colour_reads_on_its_page(palette: tuple[str, ...], page: str) -> None:
    for color in palette:
        low, high = sorted((_luminance(color), _luminance(page)))
        assert (high + 0.05) / (low + 0.05) >= 3.0  # WCAG 2.1, 1.4.11: graphical objects
    assert len(palette) == len(PALETTE)


def test_labels_pushed_apart_stay_in_order_and_in_bounds() -> None:
    places = [5.0, 5.1, 4.9, 9.9, 9.8, 0.0]
    got = spread(places, 1.0, 0.0, 10.0)
    assert sorted(range(6), key=lambda i: got[i]) == sorted(range(6), key=lambda i: places[i])
    assert np.all(np.diff(sorted(got)) >= 1.0 - 1e-9)
    assert min(got) >= 0.0
    assert max(got) <= 10.0
    assert spread([], 1.0, 0.0, 1.0) == []
