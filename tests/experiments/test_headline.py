"""What the result is in words: nothing that was not tested, and no latency where workflows are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_runs import Effect, make

from experiments.summary import summarise
from experiments.table import format_table


def _headline(path: Path, effects: dict[str, Effect], **more: Any) -> list[str]:
    lines: list[str] = summarise(*make(path, effects, **more))["headline"]
    return lines


def test_arms_faster_than_the_first_are_each_named_and_not_ranked(tmp_path: Path) -> None:
    arms = {"lru": Effect(), "sieve": Effect(0.5, 0.97), "arc": Effect(0.5, 0.9), "lfu": Effect(0.5, 1.1)}
    faster, slower, *_ = _headline(tmp_path, arms)
    assert faster.startswith(
        "2 arms finish workflows faster than lru (each was tested against it, none against "
    )
    assert faster.index("sieve 3.0 % lower") < faster.index("arc 10 % lower")
    assert slower.startswith("lfu finishes workflows slower than lru: mean latency 10 % higher")
    assert "fastest" not in faster + slower


def test_arms_that_do_not_differ_are_not_hidden_by_one_that_does(tmp_path: Path) -> None:
    arms = {"lru": Effect(), "sieve": Effect(), "arc": Effect(0.5, 0.9)}
    faster, same, *_ = _headline(tmp_path, arms)
    assert faster.startswith("arc finishes workflows faster than lru")
    assert same.startswith("No difference in mean workflow latency between lru and sieve larger than 0 %")


def test_one_seed_names_every_arm(tmp_path: Path) -> None:
    arms = {"lru": Effect(), "sieve": Effect(0.5, 1.2), "arc": Effect(0.5, 0.9)}
    line, *_ = _headline(tmp_path, arms, seeds=(0,))
    assert line == (
        "With one paired seed no interval can be given: mean workflow latency was 20 % higher with sieve and "
        "10 % lower with arc than with lru."
    )


def test_arms_that_finish_different_workflows_get_no_latency_headline(tmp_path: Path) -> None:
    plan, store = make(tmp_path, {"lru": Effect(failed=(3,)), "arc": Effect(0.6, 0.8, failed=(5, 7))})
    summary = summarise(plan, store)
    assert summary["headline"] == [
        "No headline on workflow latency, which only finished workflows have: workflows did not finish "
        "(5 of 200 with lru, 10 of 200 with arc); arc finished other workflows than lru."
    ]
    lru, arc = summary["groups"][0]["arms"]
    assert arc["finished_otherwise"] == dict.fromkeys("01234", 3)
    assert lru["finished_otherwise"] == dict.fromkeys("01234", 0)


def test_arms_that_fail_alike_get_no_latency_headline_either(tmp_path: Path) -> None:
    first, *rest = _headline(tmp_path, {"lru": Effect(failed=(3,)), "arc": Effect(0.6, 0.8, failed=(3,))})
    assert first.startswith("No headline on workflow latency")
    assert "other workflows" not in first
    assert [line.split(":")[0] for line in rest] == ["GPU hit rate"]


def test_a_failure_under_the_offline_reference_counts_too(tmp_path: Path) -> None:
    arms = {"lru": Effect(), "arc": Effect(0.6, 0.8), "belady_leaf": Effect(0.7, failed=(1,))}
    (line,) = _headline(tmp_path, arms)
    assert "(5 of 200 with belady_leaf); belady_leaf finished other workflows than lru" in line


def test_one_arm_alone_that_fails_has_no_latency_headline(tmp_path: Path) -> None:
    assert _headline(tmp_path / "a", {"lru": Effect()})[0].startswith("lru: mean workflow latency ")
    (line,) = _headline(tmp_path / "b", {"lru": Effect(failed=(0,))}, seeds=(0, 1))
    assert line.endswith("workflows did not finish (2 of 80 with lru).")


def test_each_end_of_a_sweep_says_all_that_was_tested(tmp_path: Path) -> None:
    arms = {"lru": Effect(), "arc": Effect(0.5, 0.9), "lfu": Effect(0.5, 1.1)}
    lines = _headline(tmp_path, arms, seeds=(0, 1, 2), axes={"load.concurrency": [8, 16, 32]})
    assert len(lines) == 2
    for value, line in zip((8, 32), lines, strict=True):
        assert line.startswith(f"At load.concurrency={value}, arc finishes workflows faster than lru: ")
        assert " lfu finishes workflows slower than lru: " in line


@pytest.mark.parametrize(
    ("row", "cell"),
    [
        ("workflows completed", "39  -1.0 [-1.0, -1.0]"),
        ("workflows unfinished", "1  +1.0 [+1.0, +1.0]"),
        ("requests completed", "236  -4.0 [-4.0, -4.0]"),
        ("requests incomplete", "0  same"),
        ("requests rejected", "1  +1.0 [+1.0, +1.0]"),
        ("requests never issued", "3  +3.0 [+3.0, +3.0]"),
    ],
)
def test_the_table_counts_what_failed_and_what_was_never_asked(row: str, cell: str, tmp_path: Path) -> None:
    plan, store = make(tmp_path, {"lru": Effect(), "arc": Effect(failed=(2,))})
    summary = summarise(plan, store)
    (line,) = (x for x in format_table(summary, 160).splitlines() if x.startswith(row))
    assert cell in line
    told = "arc: 1 of 40 workflows did not finish; 3 of their requests were never issued (every seed)"
    assert told in summary["warnings"]


def test_of_many_arms_the_largest_changes_are_named_and_the_rest_counted() -> None:
    from experiments import headline as module

    base = {"name": "base"}
    change = {"low": -9.0, "high": -1.0, "n": 8, "p_holm": 0.001}
    arms = [({"name": f"arm{i}"}, {**change, "mean": -float(i)}) for i in range(1, 8)]
    (said,) = module._differ(base, arms, "faster")
    assert said.startswith("7 arms finish workflows faster than base")
    assert [f"arm{i} " in said for i in range(1, 8)] == [False, False, False, True, True, True, True]
    assert said.endswith("; the other 3 by less.")
