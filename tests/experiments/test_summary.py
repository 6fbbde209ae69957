from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_runs import KV_BLOCKS, Effect, make, tables, write_run

from experiments.columns import COLUMNS, by_key
from experiments.stats import mean_interval, paired_difference, paired_percent
from experiments.summary import summarise, to_json, write_summary
from experiments.table import format_table, print_table
from traces.metrics import itl_ms, run_metrics, ttft_ms
from traces.quantiles import sample
from traces.runlog import from_tables, read_run

ARMS = {"lru": Effect(0.4), "lifecycle": Effect(0.5, 0.95), "belady_leaf": Effect(0.6, 0.9)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    plan, store = make(tmp_path_factory.mktemp("store"), ARMS)
    return plan, store, summarise(plan, store)


def _arm(summary: Any, name: str, group: int = 0) -> Any:
    return next(a for a in summary["groups"][group]["arms"] if a["name"] == name)


def _per_seed(plan: Any, store: Any, arm: str, key: str) -> dict[int, float]:
    return {s: run_metrics(read_run(store.run_dir(plan.runs[arm, s])))[key] for s in plan.seeds}


def test_every_number_of_the_table_has_its_interval_and_its_seeds(made: Any) -> None:
    plan, store, summary = made
    for name in ARMS:
        for column in (c for c in COLUMNS if not c.rare):
            got = _arm(summary, name)["windows"]["full"]["metrics"][column.key]
            values = _per_seed(plan, store, name, column.key)
            found = mean_interval(list(values.values()))
            assert found is not None
            want = found.within(0.0, 1.0 if column.change == "points" else math.inf)
            assert (got["mean"], got["low"], got["high"]) == pytest.approx((want.mean, want.low, want.high))
            assert got["n"] == len(plan.seeds)
            assert got["per_seed"] == {str(s): pytest.approx(v) for s, v in values.items()}


def test_changes_are_paired_against_the_first_arm(made: Any) -> None:
    plan, store, summary = made
    change = _arm(summary, "lifecycle")["windows"]["full"]["change"]
    for key, compare in (("ttft_ms_p99", paired_percent), ("completed", paired_difference)):
        base, other = (_per_seed(plan, store, a, key) for a in ("lru", "lifecycle"))
        want = compare(base, other)
        assert want is not None
        got = change[key]
        assert (got["mean"], got["low"], got["high"]) == pytest.approx((want.mean, want.low, want.high))
    base, other = (_per_seed(plan, store, a, "gpu_hit_rate") for a in ("lru", "lifecycle"))
    points = [100 * (other[s] - base[s]) for s in plan.seeds]
    assert change["gpu_hit_rate"]["mean"] == pytest.approx(np.mean(points))
    assert change["gpu_hit_rate"]["unit"] == "pt"
    assert _arm(summary, "lru")["windows"]["full"]["change"] == {}


def test_holm_counts_the_arms_of_a_metric(made: Any) -> None:
    _, _, summary = made
    for column in (c for c in COLUMNS if not c.rare):
        changes = [
            _arm(summary, n)["windows"]["full"]["change"][column.key] for n in ("lifecycle", "belady_leaf")
        ]
        low, high = sorted(c["p"] for c in changes)
        assert sorted(c["p_holm"] for c in changes) == pytest.approx(
            sorted([min(1.0, 2 * low), min(1.0, max(high, 2 * low))])
        )


def test_pooled_percentiles_weigh_requests_not_seeds(made: Any) -> None:
    plan, store, summary = made
    logs = [read_run(store.run_dir(plan.runs["lru", s])) for s in plan.seeds]
    metrics = _arm(summary, "lru")["windows"]["full"]["metrics"]
    pooled = np.sort(np.concatenate([ttft_ms(log) for log in logs]))
    assert metrics["ttft_ms_p99"]["pooled"] == pytest.approx(pooled[int(np.ceil(len(pooled) * 0.99)) - 1])
    gaps = [itl_ms(log) for log in logs]
    written_out = np.concatenate([np.repeat(g.value, g.count) for g in gaps if g.count is not None])
    assert metrics["itl_ms_p99"]["pooled"] == pytest.approx(sample(written_out).percentiles(99)[0])
    assert "pooled" not in metrics["gpu_hit_rate"]


def test_the_summary_is_the_same_bytes_every_time(made: Any, tmp_path: Path) -> None:
    plan, store, summary = made
    text = to_json(summary)
    assert to_json(summarise(plan, store)) == text
    path = write_summary(summary, tmp_path)
    assert path.read_text(encoding="utf-8") == text
    assert json.loads(text) == summary
    assert "NaN" not in text


def test_where_runs_lie_does_not_reach_the_summary(made: Any, tmp_path: Path) -> None:
    places = {"store": "elsewhere", "executor": {"jobs": 7}}
    plan, store = make(
        tmp_path / "elsewhere", ARMS, config=made[0].config | places,
        changed=made[0].changed | {"store": "elsewhere", "executor.jobs": 7},
    )  # fmt: skip
    assert to_json(summarise(plan, store)) == to_json(made[2])


def test_one_seed_has_values_but_no_interval(tmp_path: Path) -> None:
    plan, store = make(tmp_path, ARMS, seeds=(3,))
    summary = summarise(plan, store)
    metric = _arm(summary, "lifecycle")["windows"]["full"]["metrics"]["ttft_ms_p50"]
    change = _arm(summary, "lifecycle")["windows"]["full"]["change"]["ttft_ms_p50"]
    assert (metric["low"], metric["high"], metric["n"]) == (None, None, 1)
    assert (change["low"], change["high"], change["p_holm"]) == (None, None, None)
    assert summary["interval"].startswith("none")
    assert any("one seed" in w for w in summary["warnings"])
    assert "no interval can be given" in summary["headline"][0]


def test_a_missing_run_is_listed_and_leaves_its_pair_out(tmp_path: Path) -> None:
    plan, store = make(
        tmp_path, ARMS, missing=(("lifecycle", 2),), failures={("lifecycle", 2): "MemoryError: too large"}
    )
    summary = summarise(plan, store)
    assert summary["failures"] == [{"arm": "lifecycle", "seed": 2, "reason": "MemoryError: too large"}]
    assert _arm(summary, "lifecycle")["windows"]["full"]["change"]["ttft_ms_p50"]["n"] == 4
    assert _arm(summary, "belady_leaf")["windows"]["full"]["change"]["ttft_ms_p50"]["n"] == 5
    assert "missing: 1 of 15 runs" in format_table(summary)


def test_no_finished_run_is_said(tmp_path: Path) -> None:
    pairs = tuple((a, s) for a in ARMS for s in range(5))
    summary = summarise(*make(tmp_path, ARMS, missing=pairs))
    assert summary["headline"] == ["No run has finished."]
    assert len(summary["failures"]) == 15
    assert "no run finished" in format_table(summary)


def test_a_sweep_has_one_group_an_axis_value_with_its_own_first_arm(tmp_path: Path) -> None:
    two = {"lru": ARMS["lru"], "lifecycle": ARMS["lifecycle"]}
    plan, store = make(tmp_path, two, seeds=(0, 1), axes={"load.concurrency": [8, 32]})
    summary = summarise(plan, store)
    assert [g["axes"] for g in summary["groups"]] == [{"load.concurrency": 8}, {"load.concurrency": 32}]
    for i, group in enumerate(summary["groups"]):
        assert group["baseline"] == group["arms"][0]["label"] == f"lru load.concurrency={(8, 32)[i]}"
        change = _arm(summary, "lifecycle", i)["windows"]["full"]["change"]["tpot_ms_mean"]
        assert change["mean"] == pytest.approx(-5, abs=0.01)
    assert [line.split(",")[0] for line in summary["headline"]] == [
        "At load.concurrency=8",
        "At load.concurrency=32",
    ]


def test_offline_references_are_labelled_and_never_called_the_winner(made: Any) -> None:
    _, _, summary = made
    assert _arm(summary, "belady_leaf")["offline_reference"]
    assert summary["headline"][0].startswith("lifecycle finishes workflows faster than lru: mean")
    assert summary["headline"][-1].startswith("With the offline reference belady_leaf")
    assert "belady_leaf (offline reference)" in format_table(summary)


def test_the_headline_gives_the_hit_rate_with_its_interval(made: Any) -> None:
    change = _arm(made[2], "lifecycle")["windows"]["full"]["change"]["gpu_hit_rate"]
    rates = [
        _arm(made[2], n)["windows"]["full"]["metrics"]["gpu_hit_rate"]["mean"] for n in ("lifecycle", "lru")
    ]
    assert made[2]["headline"][1] == (
        f"GPU hit rate: {100 * rates[0]:.1f} % with lifecycle, {100 * rates[1]:.1f} % with lru "
        f"({change['mean']:+.1f} percentage points, 95 % interval "
        f"{change['low']:+.1f} to {change['high']:+.1f})."
    )


def test_equal_arms_are_no_difference(tmp_path: Path) -> None:
    plan, store = make(tmp_path, {"lru": Effect(0.4), "lifecycle": Effect(0.4)})
    summary = summarise(plan, store)
    assert summary["headline"] == [
        "No difference in mean workflow latency between lru and lifecycle larger than 0 % "
        "(95 % intervals over 5 paired seeds)."
    ]


def test_a_slower_arm_is_said_to_be_slower(tmp_path: Path) -> None:
    plan, store = make(tmp_path, {"lru": Effect(0.4), "lifecycle": Effect(0.4, 1.2)})
    sentence, *_ = summarise(plan, store)["headline"]
    assert sentence.startswith("lifecycle finishes workflows slower than lru: mean latency 20 % higher")


def test_warnings_name_arms_and_seeds_once(tmp_path: Path) -> None:
    plan, store = make(
        tmp_path, {"lru": Effect(), "lifecycle": Effect()}, seeds=(0, 1), size={"requests": 48},
        workload={"name": "w", "warnings": ["7 requests share a prefix shorter than a block of 16 tokens"]},
    )  # fmt: skip
    warnings = summarise(plan, store)["warnings"]
    assert [w for w in warnings if "no steady state" in w] == [
        "every arm: no steady state was found: steady-state figures are missing or still in the warm-up "
        "(every seed)"
    ]
    assert "workload: 7 requests share a prefix shorter than a block of 16 tokens" in warnings


def test_noisy_seeds_give_no_negative_latency(tmp_path: Path) -> None:
    plan, store = make(tmp_path, {"lru": Effect()}, seeds=(0, 1))
    for seed, slower in ((0, 1.0), (1, 30.0)):
        write_run(store.run_dir(plan.runs["lru", seed]), tables(seed, Effect(0.5, slower)))
    metrics = _arm(summarise(plan, store), "lru")["windows"]["full"]["metrics"]
    for column in (c for c in COLUMNS if not c.rare):
        assert metrics[column.key]["low"] >= 0, column.key
        assert column.change != "points" or metrics[column.key]["high"] <= 1
    assert metrics["ttft_ms_p50"]["low"] == 0


def test_shares_of_the_pool_take_its_size_from_the_manifest(tmp_path: Path) -> None:
    kv = {"blocks": KV_BLOCKS, "source": "made up"}
    stated = make(tmp_path, {"lru": Effect()}, seeds=(0, 1), state_pool=False, manifest={"kv": kv})
    metrics = _arm(summarise(*stated), "lru")["windows"]["full"]["metrics"]
    log = read_run(stated[1].run_dir(stated[0].runs["lru", 0]), kv_blocks=KV_BLOCKS)
    for key in ("kv_active_share", "kv_resident_share"):
        assert metrics[key]["per_seed"]["0"] == pytest.approx(run_metrics(log)[key])
        assert 0 < metrics[key]["mean"] < 1


def test_workflows_that_never_began_are_warned_about(tmp_path: Path) -> None:
    summary = summarise(
        *make(tmp_path, {"lru": Effect()}, seeds=(0, 1), manifest={"stats": {"workflows": 50}})
    )
    assert "lru: 10 of 50 workflows had not begun when the run ended (every seed)" in summary["warnings"]


def test_fast_forward_ratio_comes_from_the_manifests(made: Any) -> None:
    ratio = _arm(made[2], "lru")["fast_forward_ratio"]
    assert ratio["per_seed"] == {str(s): pytest.approx(0.9 + s / 100) for s in range(5)}


@pytest.mark.parametrize("width", [60, 90, 120, 200])
def test_the_table_fits_its_width_and_shows_every_arm_once(made: Any, width: int) -> None:
    text = format_table(made[2], width)
    body = text[: text.index(made[2]["headline"][0])].splitlines()[1:]
    assert max(map(len, body)) <= max(width, 60)
    for name in ARMS:
        assert sum(name in line for line in body) == 1
    for column in (c for c in COLUMNS if not c.rare):
        assert any(line.startswith(column.label) for line in body)


def test_print_table_writes_to_the_file_given(made: Any) -> None:
    out = io.StringIO()
    print_table(made[2], file=out, width=120)
    assert out.getvalue() == format_table(made[2], 120) + "\n"


def test_shown_numbers_keep_three_digits() -> None:
    assert by_key("ttft_ms_p50").show(0.0123456) == "0.0123 ms"
    assert by_key("workflow_latency_s_mean").show(1234.5) == "1234 s"
    assert by_key("host_hit_rate").show(None) == "-"
    same = {"mean": 0.0, "low": 0.0, "high": 0.0, "n": 5}
    assert by_key("incomplete").show_change(same, 5) == "same"


def test_fake_runs_keep_the_schema_of_the_log() -> None:
    metrics = run_metrics(from_tables(tables(0, Effect())))
    assert metrics["completed"] == 240
    assert 0 < metrics["gpu_hit_rate"] < 1
