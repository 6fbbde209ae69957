"""Draws of the profile: the same for every arm and machine, spread over seeds, and in the intervals."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from fake_runs import Effect, make, tables, write_run

from calibration import catalog, posterior, uncertainty
from experiments import calibrated
from experiments.build import build
from experiments.calibrated import Draws, with_calibration
from experiments.columns import by_key
from experiments.plan import parse_plan
from experiments.report import render_report
from experiments.run import failed, run
from experiments.stats import mean_interval
from experiments.store import Store
from experiments.summary import summarise, to_json
from experiments.table import format_table
from traces import portable
from traces.errors import InputError

CSV = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i / 20},{600 + 97 * i},8\n" for i in range(12))
PROFILE = "H200x1--Qwen3-8B--bf16--vllm"


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    path = tmp_path / "w.csv"
    path.write_text(CSV)
    return [
        f"workload={path}", f"profile={PROFILE}", "evictor=lru,sieve", "seeds=2", "load.concurrency=4",
        "engine.max_model_len=null", "load.request_tokens_max=null", "load.workflows=12",
        "executor.jobs=1", f"store={tmp_path / 'runs'}",
    ]  # fmt: skip


def test_a_draw_is_the_same_everywhere_and_keeps_whole_rising_tables() -> None:
    profile = catalog.open(PROFILE)
    one, again, two = (uncertainty.draw(profile, d) for d in (0, 0, 1))
    assert one == again != two
    assert one.kv_bytes_per_token == profile.kv_bytes_per_token
    assert one.identity == profile.identity
    assert all(isinstance(v, int) for v in one.linear_ps)
    assert list(one.linear_ps) == sorted(one.linear_ps)


def test_draws_have_the_stated_mean_absolute_error() -> None:
    profile = dataclasses.replace(catalog.open(PROFILE), error={"mape_percent": 10.0}, posterior={})
    drawn = [uncertainty.draw(profile, d) for d in range(400)]
    ratios = np.array([d.kv_read_ps_per_token / profile.kv_read_ps_per_token for d in drawn])
    # The mean of 400 |log factors| of mean 0.1 has a standard error of 0.0038.
    assert abs(np.abs(np.log(ratios)).mean() - 0.1) < 0.012
    assert abs(np.log(ratios).mean()) < 0.02


def test_a_profile_that_states_no_error_cannot_be_drawn() -> None:
    profile = dataclasses.replace(catalog.open(PROFILE), error={}, posterior={})
    with pytest.raises(InputError, match=r"error\.mape_percent"):
        uncertainty.draw(profile, 0)


def test_a_posterior_is_drawn_from_where_there_is_one() -> None:
    profile = dataclasses.replace(catalog.open(PROFILE), posterior={})
    drawn = [uncertainty.scaled(profile, {"kv_read": 900_000 + 100_000 * i}) for i in range(3)]
    held = dataclasses.replace(profile, posterior=posterior.posterior(profile, drawn, "three made up"))
    reads = [uncertainty.draw(held, i).kv_read_ps_per_token for i in range(3)]
    assert np.array(reads) == pytest.approx([d.kv_read_ps_per_token for d in drawn], rel=1e-4)
    assert "three made up" in uncertainty.source(held)
    with pytest.raises(InputError, match="holds 3 draws"):
        uncertainty.draw(held, 3)


def test_draws_are_spread_over_seeds_and_paired_across_arms(words: list[str]) -> None:
    plan, jobs, _ = build([*words, "profile_draws=5"])
    assert len(plan.runs) == 4
    assert len(plan.draws) == 10
    by_id = {j.run_id: j for j in jobs}
    assert len(jobs) == 14
    for draw in range(5):
        lru, sieve = (by_id[plan.draws[arm, draw]] for arm in ("lru", "sieve"))
        assert lru.profile == sieve.profile == uncertainty.draw(catalog.open(PROFILE), draw)
        assert lru.config.seed == sieve.config.seed == plan.draw_seed(draw) == draw % 2
        assert lru.kv_blocks == by_id[plan.runs["lru", 0]].kv_blocks
    assert parse_plan(plan.to_json()) == plan


def test_asking_for_draws_renames_no_run_under_the_profile_itself(words: list[str]) -> None:
    without, with_draws = (build([*words, *more])[0] for more in ([], ["profile_draws=2"]))
    assert without.runs == with_draws.runs
    assert without.digest != with_draws.digest


@pytest.mark.parametrize("value", ["1", "-3", "1001", "2,3"])
def test_a_bad_number_of_draws_is_one_line(words: list[str], value: str) -> None:
    with pytest.raises(InputError, match="profile_draws"):
        build([*words, f"profile_draws={value}"])


def test_the_command_reports_both_intervals(words: list[str], tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    assert run([*words, "profile_draws=3"]) == 0
    out = capsys.readouterr()
    assert "(2 seeds + 3 draws of the profile) = 10 runs" in out.err
    plan, _, _ = build([*words, "profile_draws=3"])
    store = Store(tmp_path / "runs")
    summary = summarise(plan, store)
    arm = summary["groups"][0]["arms"][0]
    metric = arm["windows"]["full"]["metrics"]["workflow_latency_s_mean"]
    assert metric["low"] is not None
    assert metric["calibrated"]["n"] == 3
    assert metric["calibrated"]["high"] - metric["calibrated"]["low"] > metric["high"] - metric["low"]
    report = render_report(plan, summary, store)
    assert "calibration too:" in report
    assert "draws of its step costs" in report


def test_exact_pieces_add_their_variances() -> None:
    seeds = {0: 10.0, 1: 12.0, 2: 11.0}
    drawn = {d: seeds[d % 3] + (1.0 if d % 2 else -1.0) for d in range(12)}
    found = with_calibration(seeds, drawn, lambda d: d % 3)
    assert found is not None
    luck, error = 1.0 / 3, (12 / 11) * (1 + 1 / 12)
    total = luck + error
    freedom = total**2 / (luck**2 / 2 + error**2 / 11)
    from scipy.special import stdtrit

    assert found.mean == pytest.approx(11.0)
    assert found.high is not None
    assert found.high - found.mean == pytest.approx(stdtrit(freedom, 0.975) * math.sqrt(total))


def test_more_draws_do_not_shrink_what_is_not_known() -> None:
    seeds = {0: 10.0, 1: 10.0}
    few, many = (
        with_calibration(seeds, {d: 10.0 + (-1.0) ** d for d in range(n)}, lambda d: d % 2) for n in (20, 400)
    )
    assert few is not None
    assert many is not None
    assert few.high is not None
    assert many.high is not None
    assert many.high - many.mean > 0.85 * (few.high - few.mean) > 1.5


def test_one_seed_or_one_draw_gives_no_interval() -> None:
    assert with_calibration({0: 1.0}, {0: 1.0, 1: 2.0}, lambda d: 0) is None
    assert with_calibration({0: 1.0, 1: 2.0}, {0: 1.0}, lambda d: 0) is None
    assert with_calibration({0: 1.0, 1: 2.0}, {0: 1.0, 1: math.nan}, lambda d: d) is None


def test_an_error_that_all_arms_share_leaves_their_change_alone() -> None:
    column = by_key("workflow_latency_s_mean")
    seeds = range(4)
    base = {s: 10.0 + s for s in seeds}
    other = {s: 0.9 * v for s, v in base.items()}
    slower = {d: base[d % 4] * (1 + d / 10) for d in range(8)}
    tenth_less = {d: 0.9 * v for d, v in slower.items()}
    found = calibrated.change(
        column, base, other, Draws(slower, lambda d: d % 4), Draws(tenth_less, lambda d: d % 4)
    )  # fmt: skip
    assert found is not None
    assert found.mean == pytest.approx(-10.0)
    assert found.high is not None
    assert found.high == pytest.approx(-10.0)
    alone = with_calibration(base, slower, lambda d: d % 4)
    seeds_only = mean_interval(list(base.values()))
    assert alone is not None
    assert seeds_only is not None
    assert alone.high is not None
    assert seeds_only.high is not None
    assert alone.high - alone.mean > seeds_only.high - seeds_only.mean


def _with_draws(tmp_path: Path, factors: list[float]):  # type: ignore[no-untyped-def]
    effects = {"lru": Effect(0.4), "lifecycle": Effect(0.6, 0.8)}
    plan, store = make(tmp_path, effects)
    draws = {}
    for name, effect in effects.items():
        for d, factor in enumerate(factors):
            draws[name, d] = f"draw{name}{d}"
            with store.begin(draws[name, d]) as draft:
                slower = Effect(effect.hit_rate, effect.slower * (factor if name == "lifecycle" else 1.0))
                write_run(draft.directory, tables(plan.draw_seed(d), slower))
                draft.commit({"seed": plan.draw_seed(d), "stats": {}})
    return dataclasses.replace(plan, draws=draws), store


def test_a_winner_within_calibration_error_is_not_called_sure(tmp_path: Path) -> None:
    normal = portable.normal(0, "test draws", np.arange(10))
    plan, store = _with_draws(tmp_path, [float(f) for f in portable.exp(0.4 * normal)])
    summary = summarise(plan, store)
    change = summary["groups"][0]["arms"][1]["windows"]["full"]["change"]["workflow_latency_s_mean"]
    assert change["high"] < 0 < change["calibrated"]["high"]
    assert change["p_holm"] < 0.05 < change["calibrated"]["p_holm"]
    (line,) = [s for s in summary["headline"] if s.startswith("With calibration error")]
    assert "10 draws of the profile" in line
    assert line in format_table(summary)
    assert to_json(summary) == to_json(summarise(plan, store))


def test_missing_draws_are_said_and_failures_name_them(tmp_path: Path) -> None:
    plan, store = _with_draws(tmp_path, [1.1, 0.9, 1.0])
    gone = dataclasses.replace(plan, draws=plan.draws | {("lru", 3): "nowhere", ("lifecycle", 3): "nowhere2"})
    assert any(
        "1 of 4 runs under drawn profiles are missing" in w for w in summarise(gone, store)["warnings"]
    )
    assert failed(gone, {"nowhere": "out of memory"}) == {("lru", 3): "profile draw 3: out of memory"}
