"""Laws of AgentSpec's card: the paper's shapes are judged so, opposites are not; measures equal brute force."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.cards.agentspec import methods, sweeps
from experiments.cards.agentspec.family import ABSENT, NEEDS, intensity, judge
from experiments.cards.agentspec.studies import MODES, NORMAL, REGIMES, STUDIES, SUFFIX
from experiments.cards.rows import INCONSISTENT, NOT, NOT_ATTEMPTED, REPRODUCED, SHAPE
from experiments.compose import compose
from experiments.plan import Arm
from experiments.targets import target, targets
from experiments.token_repeats import SOURCES, Drafts, by_redundancy, drafts, grams, repeated, segments, slope
from policies.views import HostInfo
from sim.worlds import flat_profile
from traces.builder import WorkloadBuilder
from traces.schema import Workload

SEEDS = range(5)


class Fake:
    """Results from a rule: (axes, drafter, budget, metric) -> value; seeds scatter alike in all arms."""

    def __init__(
        self, axes: list[dict[str, Any]], pairs: list[tuple[str, str]], rule: Callable[..., float]
    ) -> None:
        self.rule = rule
        arms = [
            Arm(f"{p}{a}", a, (), {"drafters": p[0], "budgets": p[1]})
            for a in axes
            for p in dict.fromkeys(pairs)
        ]
        self.plan = type("P", (), {"arms": arms, "config": {"profile": "A100x1--Qwen3-8B--bf16--vllm"}})

    def metric(self, arm: Arm | None, name: str) -> dict[int, float]:
        if arm is None:
            return {}
        value = self.rule(arm.axes, arm.policies["drafters"], arm.policies["budgets"], name)
        return {s: value * (1 + 0.002 * (s - 2)) for s in SEEDS}


ALL = [
    *methods.pairs("literal").values(),
    ("structured", MODES["per_request"]),
    ("structured", "redundancy(mode=capped)"),
]


def test_the_papers_rejection_rates_are_judged_reproduced_and_equal_ones_are_not() -> None:
    wanted = target("R25").values
    by_drafter = {"ngram(n_min=4)": "ngram", "suffix": "suffix", "structured": "agentspec"}
    axes = [{"workload": "reflexion", methods.REGIME: "packed"}]

    def rule(_: Any, drafter: str, budget: str, name: str) -> float:
        share = wanted[by_drafter.get(drafter, "ngram")]
        return float(share if name == "rejection_rate_mean" else 1 - share)

    assert methods.rejection(Fake(axes, ALL, rule)).verdict == REPRODUCED  # type: ignore[arg-type]
    same = methods.rejection(Fake(axes, ALL, lambda *_: 0.5))  # type: ignore[arg-type]
    assert same.verdict == NOT


def batch_rule(fall: float, agentspec: float) -> Callable[..., float]:
    def rule(axes: dict[str, Any], drafter: str, budget: str, name: str) -> float:
        if drafter == "none":
            return 100.0
        if drafter == "structured":
            return 100.0 * agentspec
        return 100.0 * (1.5 if axes[sweeps.BATCH] == 1 else fall)

    return rule


@pytest.mark.parametrize(
    ("fall", "agentspec", "verdict"), [(0.8, 1.2, SHAPE), (1.1, 1.2, NOT), (0.8, 0.9, NOT)]
)
def test_batches_are_reproduced_when_only_agentspec_stays_above_one(
    fall: float, agentspec: float, verdict: str
) -> None:
    axes = [
        {"workload": "taubench", methods.REGIME: r, sweeps.BATCH: b} for r in REGIMES for b in (1, 16, 64)
    ]
    rows = sweeps.batches(Fake(axes, ALL, batch_rule(fall, agentspec)))  # type: ignore[arg-type]
    assert len(rows) == 2 * len(MODES)
    assert {r.verdict for r in rows} == {verdict}


@pytest.mark.parametrize(("s", "r", "verdict"), [(1.2, 1.1, SHAPE), (1.1, 1.2, NOT)])
def test_the_ablation_asks_for_structure_before_redundancy(s: float, r: float, verdict: str) -> None:
    def rule(_: Any, drafter: str, budget: str, name: str) -> float:
        if (drafter, budget) == NORMAL:
            return 100.0
        if (drafter, budget) == SUFFIX:
            return 95.0
        if budget.startswith("fixed_k"):
            return 100 * s
        return 100 * (r if drafter == "suffix" else 1.3)

    words = [f"structured{n}" for n in ("", "(by_block=false)")]
    pairs = [(w, b) for w in (*words, "suffix") for b in MODES.values()]
    pairs += [NORMAL, SUFFIX, ("structured", "fixed_k(k=32)")]
    axes = [{"workload": "taubench", methods.REGIME: regime} for regime in REGIMES]
    rows = sweeps.ablation(Fake(axes, pairs, rule))  # type: ignore[arg-type]
    assert {row.verdict for row in rows} == {verdict}


@pytest.mark.parametrize(("h100", "verdict"), [(1.4, SHAPE), (1.1, NOT)])
def test_a_gpu_row_asks_for_more_on_the_faster_gpu(h100: float, verdict: str) -> None:
    def rule(axes: Any, drafter: str, budget: str, name: str) -> float:
        return 100.0 if drafter == "none" else 100 * (h100 if axes["gpu"] == "H100" else 1.2)

    axes = [{"workload": "taubench", "gpu": g, methods.REGIME: r} for r in REGIMES for g in ("A100", "H100")]
    rows = sweeps.gpus(Fake(axes, ALL, rule))  # type: ignore[arg-type]
    assert {row.verdict for row in rows} == {verdict}


def test_every_target_has_a_judge_and_every_study_is_needed() -> None:
    assert set(NEEDS) | set(ABSENT) | {"R26", "R28", "R29"} == set(targets("agentspec"))
    assert {s for names in NEEDS.values() for s in names} == set(STUDIES)
    rows = judge({}, list(ABSENT), quick=True)
    assert {r.verdict for r in rows} == {NOT_ATTEMPTED}
    assert (
        intensity(flat_profile(1, identity={**flat_profile(1).identity, "gpu": "A100"})).verdict
        == INCONSISTENT
    )


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_composes_in_full_and_quick(name: str) -> None:
    for quick in (False, True):
        composed = compose(STUDIES[name].command(quick=quick, seeds=None))
        assert "verify.attention" in composed.axes
        assert len(composed.arms) > 2


def test_a_small_card_runs_and_shows_both_regimes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    store = tmp_path / "runs"
    words = [
        "reproduce",
        "agentspec",
        "--quick",
        "only=R39",
        f"store={store}",
        "load.workflows=3",
        "executor.jobs=1",
    ]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "attention packed" in said
    assert "attention prefill" in said


# -- measures on token ids ------------------------------------------------------------------------------------


def world() -> Workload:
    """Make four queries in two kinds of blocks over a small vocabulary."""
    b = WorkloadBuilder("toy", 16)
    state = 7
    for w in range(4):
        b.workflow(f"w{w}")
        parents: list[int] = []
        for _ in range(3):
            ids, blocks = [], []
            for i in range(30):
                state = (1103515245 * state + 12345) % 2**31
                ids.append(state // 65536 % 4 + 1)
                blocks.append("code" if 8 <= i < 20 else "")
            parents = [
                b.llm(
                    10,
                    len(ids),
                    parents=parents,
                    agent="x/y",
                    output_ids=np.array(ids, np.uint32),
                    output_blocks=blocks,
                )
            ]
    return b.build()


def naive(workload: Workload, k: int) -> dict[str, list[int]]:
    """Count repeated tokens by comparing every span with every earlier one."""
    whole = segments(workload)
    out: dict[str, list[int]] = {s: [] for s in (SOURCES[0], SOURCES[1], SOURCES[4])}
    for w, segs in enumerate(whole):
        counts = dict.fromkeys(out, 0)
        for n, seg in enumerate(segs):
            tokens = seg.tokens.tolist()
            sources = {
                SOURCES[0]: [s.tokens.tolist() for s in segs[:n] if s.block == seg.block],
                SOURCES[1]: [s.tokens.tolist() for s in segs[:n] if s.block != seg.block],
                SOURCES[4]: [
                    s.tokens.tolist()
                    for v, other in enumerate(whole)
                    if v != w
                    for s in other
                    if s.block == seg.block
                ],
            }
            for name, earlier in sources.items():
                covered = set()
                for i in range(len(tokens) - k + 1):
                    span = tokens[i : i + k]
                    hits = any(e[j : j + k] == span for e in earlier for j in range(len(e) - k + 1))
                    own = name == SOURCES[0] and any(tokens[j : j + k] == span for j in range(i))
                    if hits or own:
                        covered |= set(range(i, i + k))
                counts[name] += len(covered)
        for name, count in counts.items():
            out[name].append(count)
    return out


@pytest.mark.parametrize("k", [2, 3, 5])
def test_repetition_equals_a_comparison_of_every_span(k: int) -> None:
    found, expected = repeated(world(), k), naive(world(), k)
    for name, counts in expected.items():
        assert [c for c, _ in found[name]] == counts
        assert sum(counts) > 0
    assert {n for _, n in found[SOURCES[0]]} == {90}


def test_segments_are_runs_of_the_block_a_token_lies_in() -> None:
    first = segments(world())[0]
    # The block is open after token 8, so that token 9 is the first within; it closes after token 20.
    assert [(s.block, len(s.tokens)) for s in first[:3]] == [(0, 9), (1, 12), (0, 9)]


def test_hashes_of_spans_are_equal_where_the_spans_are() -> None:
    tokens = np.array([5, 6, 7, 5, 6, 7, 6, 5], np.uint32)
    spans = [tuple(tokens[i : i + 3]) for i in range(6)]
    hashes = grams(tokens, 3).tolist()
    assert len(set(hashes)) == len(set(spans))
    assert len(grams(tokens[:2], 3)) == 0


def test_drafts_at_every_position_accept_what_repeats() -> None:
    b = WorkloadBuilder("again", 16)
    b.workflow("w")
    ids = np.tile(np.arange(1, 11, dtype=np.uint32), 6)
    b.llm(4, len(ids), agent="x/y", output_ids=ids, output_blocks=["a"] * len(ids))
    found = drafts(b.build(), HostInfo(flat_profile(1), 16, 1 << 16), 1)
    assert len(found.accepted) > 30
    assert set(found.accepted.tolist()) == {1.0}
    assert found.redundancy.max() == 1.0
    assert found.matches.max() >= 3


def test_the_slope_is_that_of_the_points_and_its_interval_holds_it() -> None:
    x = np.tile(np.array([0.2, 0.5, 0.8, 1.0]), 50)
    workflow = np.repeat(np.arange(10), 20)
    y = np.clip(0.1 + 0.7 * x + 0.02 * np.sin(np.arange(200)), 0, 1)
    found = Drafts(x, np.full(200, 2), y, workflow)
    got = slope(found, np.ones(200, dtype=bool))
    assert got is not None
    assert got.low is not None
    assert got.high is not None
    assert got.low < 0.7 < got.high
    assert got.high - got.low < 0.1
    assert slope(found, workflow < 2) is None
    shares = by_redundancy(found, np.ones(200, dtype=bool))
    assert shares == sorted(shares)
    assert all(math.isnan(s) for s in by_redundancy(found, found.matches > 5))
