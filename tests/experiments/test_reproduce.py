"""Laws of the report card: verdicts follow from checks, failures stay on it, runs are resumed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from experiments.__main__ import main
from experiments.cards import render
from experiments.cards.pbkv import controls, course, engine, forecasts, micro, sweeps, tables
from experiments.cards.pbkv.family import NEEDS
from experiments.cards.pbkv.studies import STUDIES
from experiments.cards.pbkv.theorem import check
from experiments.cards.results import HIT, LATENCY, TTFT
from experiments.cards.rows import (
    NOT,
    NOT_ATTEMPTED,
    REPRODUCED,
    SHAPE,
    Check,
    Row,
    falls,
    judged,
    near,
    rises,
)
from experiments.compose import compose
from experiments.plan import Arm
from experiments.targets import target, targets

SEEDS = range(6)


class Fake:
    """Results whose arms have the metrics given: name -> metric -> mean; seeds scatter around it alike in all arms."""

    def __init__(self, means: dict[str, dict[str, float]]) -> None:
        self.means = means

    def arm(self, axes: Any = None, **policies: str) -> Any:
        wanted = (policies["evictors"], policies["prefetchers"])
        return next((n for n, policy in tables.ARMS.items() if policy == wanted and n in self.means), None)

    def metric(self, arm: str | None, name: str, window: str = "full") -> dict[int, float]:
        return {} if arm is None else {s: self.means[arm][name] * (1 + 0.01 * (s - 2.5)) for s in SEEDS}


def paper(id: str) -> dict[str, dict[str, float]]:
    return {
        n: {HIT: v["hit_pct"], LATENCY: v["latency_s"], TTFT: v["ttft_s"]}
        for n, v in target(id).values.items()
    }


@pytest.mark.parametrize("id", tables.CELLS)
def test_the_papers_own_numbers_are_judged_reproduced(id: str) -> None:
    row = tables._cell(id, Fake(paper(id)), "as published")  # type: ignore[arg-type]
    assert row.verdict == REPRODUCED, [c.text for c in row.checks if not c.ok]


def test_the_right_order_with_other_sizes_is_shape_only_and_a_wrong_order_is_not_reproduced() -> None:
    means = paper("R46")
    halved = {n: m | {HIT: m[HIT] / 2} for n, m in means.items()}
    assert tables._cell("R46", Fake(halved), "").verdict == SHAPE  # type: ignore[arg-type]
    swapped = means | {"lae": means["he"], "he": means["lae"]}
    row = tables._cell("R46", Fake(swapped), "")  # type: ignore[arg-type]
    assert row.verdict == NOT
    assert any("hit lae to he" in c.text for c in row.checks if not c.ok)


def test_the_papers_latencies_are_affine_in_its_miss_rates() -> None:
    row = tables._affine({id: Fake(paper(id)) for id in tables.CELLS})  # type: ignore[misc]
    assert row.verdict == REPRODUCED, [c.text for c in row.checks if not c.ok]
    flat = {n: m | {HIT: 50.0} for n, m in paper("R46").items()}
    assert tables._affine({"R46": Fake(flat)}).verdict == NOT  # type: ignore[dict-item]


def test_a_verdict_needs_every_shape_check() -> None:
    yes, no = Check("a", True), Check("b", False)
    value = Check("c", True, "value")
    assert judged("R46", "", "", [yes, value]).verdict == REPRODUCED
    assert judged("R46", "", "", [yes]).verdict == SHAPE
    assert judged("R46", "", "", [yes, no, value]).verdict == NOT
    assert judged("R46", "", "", [value]).verdict == NOT


def test_a_difference_counts_when_its_paired_interval_excludes_zero() -> None:
    base = {s: 10.0 + s for s in SEEDS}
    more = {s: v + 1 + 0.1 * (s % 2) for s, v in base.items()}
    noisy = {s: v + (-1) ** s * 5 + 0.1 for s, v in base.items()}
    assert rises("x", base, more).ok
    assert falls("x", more, base).ok
    assert not rises("x", more, base).ok
    assert not rises("x", base, noisy).ok
    assert not rises("x", {0: 1.0}, {0: 2.0}).ok  # one seed proves nothing
    assert not near("x", float("nan"), 1.0, 0.5).ok


def arm(**axes: Any) -> Arm:
    return Arm(label=str(axes), axes=axes, overrides=(), policies={"evictors": "lru"})


def test_a_sweep_that_rises_with_concurrency_is_not_reproduced() -> None:
    class Swept:
        def __init__(self, hits: dict[tuple[str, int], float]) -> None:
            self.hits = hits
            self.plan = type("P", (), {"arms": [self._arm(e, c) for e, c in hits]})

        def _arm(self, evictor: str, at: int) -> Arm:
            return Arm(
                label=f"{evictor}{at}",
                axes={"load.concurrency": at},
                overrides=(),
                policies={"evictors": evictor},
            )

        def metric(self, arm: Arm, name: str) -> dict[int, float]:
            mean = self.hits[arm.policies["evictors"], arm.axes["load.concurrency"]]
            return {s: mean + 0.1 * s for s in SEEDS}

    good = {("lru", 48): 80, ("lookahead", 48): 80.2, ("lru", 72): 30, ("lookahead", 72): 60}
    assert sweeps.concurrency(Swept(good)).verdict == REPRODUCED  # type: ignore[arg-type]
    bad = good | {("lru", 72): 90, ("lookahead", 72): 95}
    assert sweeps.concurrency(Swept(bad)).verdict == NOT  # type: ignore[arg-type]


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_composes_in_full_and_quick(name: str) -> None:
    for quick in (False, True):
        words = STUDIES[name].command(quick=quick, seeds=None)
        composed = compose(words)
        assert composed.settings({}).name.startswith("pbkv")
        assert len([w for w in words if w.startswith("seeds=")]) <= 1


def test_every_table_runs_the_arms_that_its_targets_name() -> None:
    for id, cells in tables.CELLS.items():
        for study in (*(c for c in cells if c), *((tables.HALF[id],) if id in tables.HALF else ())):
            arms = compose(STUDIES[study].command(quick=True, seeds=None)).arms
            have = {(str(a["evictors"][0].name), str(a["prefetchers"][0].name)) for a in arms}
            assert {tables.ARMS[name] for name in target(id).values} <= have, study


def test_every_target_has_a_judge_and_every_study_is_needed() -> None:
    judged_elsewhere = {"R55", "R56", "R57", "R61", "R62", "P13", "P13L"}
    assert set(NEEDS) | judged_elsewhere == set(targets("pbkv"))
    assert {s for names in NEEDS.values() for s in names} == set(STUDIES)


def points(
    hits: dict[float, float], slope: float = 2.0, base: float = 40.0
) -> dict[float, tuple[float, float]]:
    return {size: (hit, slope * (100 - hit) + base) for size, hit in hits.items()}


def test_the_engine_alone_is_affine_where_latency_follows_misses() -> None:
    line = {"lru": points({0.75: 30, 1.0: 40, 2.0: 60}), "lae": points({1.0: 50}), "he": points({1.0: 55})}
    assert engine._alone({"R46": line}).verdict == REPRODUCED
    bent = line | {"lru": {0.75: (30.0, 180.0), 1.0: (40.0, 60.0), 2.0: (60.0, 58.0)}}
    assert engine._alone({"R46": bent}).verdict == SHAPE
    flat = line | {"lru": points({0.75: 40, 1.0: 40, 2.0: 40})}
    assert engine._alone({"R46": flat}).verdict == NOT


def test_what_was_fitted_is_not_counted_as_predicted() -> None:
    cells = {}
    for id in ("R46", "R47"):
        values = target(id).values
        cells[id] = {n: {1.0: (values[n]["hit_pct"], values[n]["latency_s"] / 2)} for n in engine.NAMES}
    row = engine.blind(cells)
    assert row.verdict == REPRODUCED
    assert "times 2.00" in row.ours
    texts = [c.text for c in row.checks]
    assert not any(t.startswith(("R46 hit of lru", "R46 latency of lru", "R46 hit of he")) for t in texts)
    assert sum(c.of == "value" for c in row.checks) == 3 + 6
    cells["R47"]["lru"][1.0] = (90.0, 1.0)
    assert engine.blind(cells).verdict == NOT


class Arms:
    """Results by arm: hit rates around a mean, alike in all arms."""

    def __init__(self, family: str, means: dict[str, float]) -> None:
        self.plan = type(
            "P", (), {"arms": [Arm(w, {}, (), {family: w, "prefetchers": "none"}) for w in means]}
        )
        self.means = means

    def metric(self, arm: Arm, name: str) -> dict[int, float]:
        return {s: self.means[arm.label] + (-1) ** s * 0.1 * (1 + self.means[arm.label] % 1) for s in SEEDS}


@pytest.mark.parametrize(("shuffled", "verdict"), [(52.0, SHAPE), (50.0, SHAPE), (57.0, NOT)])
def test_a_gain_that_survives_shuffling_fails_the_control(shuffled: float, verdict: str) -> None:
    arms = {
        "uniform": 52.0,
        "markov(online=false)": 59.0,
        "shuffled": shuffled,
        "shuffled(agents=true)": 49.5,
    }
    assert controls.shuffled(Arms("predictors", arms)).verdict == verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(("conservative", "verdict"), [(50.4, SHAPE), (49.5, SHAPE), (47.0, NOT)])
def test_prefetching_is_no_worse_when_the_loss_stays_below_the_margin(
    conservative: float, verdict: str
) -> None:
    class Noise(Arms):
        def __init__(self) -> None:
            self.plan = type("P", (), {"arms": [
                Arm(p, {}, (), {"prefetchers": p, "predictors": "noise(level=0.2)"}) for p in ("none", "conservative")
            ]})  # fmt: skip
            self.means = {"none": 50.0, "conservative": conservative}

    assert controls.inferiority(Noise()).verdict == verdict  # type: ignore[arg-type]


def test_with_room_for_all_logs_that_differ_fail_the_control(tmp_path: Path) -> None:
    class Ample(Arms):
        def runs(self, arm: Arm) -> dict[int, Path]:
            return {0: tmp_path / arm.label}

    for name in ("lru", "lookahead"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "steps.parquet").write_bytes(b"the same")
    results = Ample("evictors", {"lru": 50.0, "lookahead": 50.0})
    assert controls.ample(results).verdict == SHAPE  # type: ignore[arg-type]
    (tmp_path / "lru" / "steps.parquet").write_bytes(b"another")
    assert controls.ample(results).verdict == NOT  # type: ignore[arg-type]


def test_the_theorem_holds_on_random_instances_and_bounds_something() -> None:
    found = check(60)
    assert (found.lipschitz_failures, found.regret_failures) == (0, 0)
    assert 0 < found.largest_share <= 1


def test_hidden_state_rows_are_not_attempted() -> None:
    steps = [{0: v, 1: v} for v in (0.8, 0.6, 0.5)]
    cell = dict.fromkeys(forecasts.SIZES, steps)
    rows = forecasts.rows({f"markov(order={n})": cell for n in (1, 2, 3)})
    assert [r.verdict for r in rows if r.id == "R57"] == [NOT_ATTEMPTED]
    assert forecasts.HIDDEN_STATES in next(r for r in rows if r.id == "R55").reading


def test_the_card_shows_what_failed_as_text_json_and_page() -> None:
    row = Row("R53", "<5>", "literal", NOT, (Check("peak at K=1", False),), "a note")
    assert "fails: peak at K=1" in render.as_text([row])
    body = json.loads(render.as_json([row], {"said": "x", "commands": []}))
    assert body["rows"][0]["checks"] == [{"of": "shape", "ok": False, "text": "peak at K=1"}]
    assert body["verdicts"] == {NOT: 1}
    page = render.as_html([row], {"said": "x", "commands": ["run"]})
    assert "&lt;5&gt;" in page
    assert "FAILS (shape): peak at K=1" in page
    assert "http" not in page


def test_a_card_is_written_resumed_and_the_same_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    store = tmp_path / "runs"
    words = [
        "reproduce", "pbkv", "--quick", "only=R63", f"store={store}", "load.workflows=6", "executor.jobs=1",
    ]  # fmt: skip
    assert main(words) == 0
    said = capsys.readouterr()
    assert "12/12 runs" in said.err
    assert "R63" in said.out
    card = store / "cards" / "pbkv-quick" / "card.json"
    first = card.read_bytes()
    shutil.rmtree(next((store / "runs").iterdir()))
    assert main(words) == 0
    assert "11 of them in the store already" in capsys.readouterr().err
    assert card.read_bytes() == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pbvk"], "unknown reproduction 'pbvk'; did you mean 'pbkv'"),
        (["pbkv", "only=R99"], "unknown target 'R99'"),
        (["pbkv", "seeds=0"], "seeds=0: expected a count of at least 1"),
        (["pbkv", "sede=3"], "unknown option of reproduce 'sede'; did you mean 'seeds'"),
        (["pbkv", "--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_bad_words_end_in_one_line_and_status_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["reproduce", *words]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_micro_rows_name_the_inconsistent_number(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {
        n: {"72": {"median": 1e9, "p99": 1e9}, "720": {"median": 2e9, "p99": 2e9}}
        for n, _ in micro.COSTS.values()
    }
    monkeypatch.setattr(micro.bench_policies, "measure", lambda *_: {"cost_us": cost})
    row = micro._costs()
    assert sum(not c.ok for c in row.checks) == 4
    assert "inconsistent in the paper" in row.note
    assert course.ONSET in course.PHASES
