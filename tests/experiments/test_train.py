"""`python -m experiments train`: what it writes, what it refuses, and what its table says."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import ceilings, train_table
from experiments.__main__ import main
from experiments.train import TrainOptions, read_options
from policies.api import WorkflowView
from policies.laws import toy_host
from policies.registry import load
from policies.training import modelfile
from policies.training.sequences import Sequences, of_workload, split
from traces import store, workloads
from traces.errors import InputError

HAS_TORCH = importlib.util.find_spec("torch") is not None


def test_the_workflows_held_out_are_none_of_those_learned_from(tmp_path: Path) -> None:
    model, rest = tmp_path / "m.safetensors", tmp_path / "rest.workload"
    words = [
        "train",
        "predictor=markov",
        "workload=hover",
        "seed=3",
        "--out",
        str(model),
        "--held-out",
        str(rest),
    ]
    assert main(words) == 0
    whole, held = workloads.open("hover"), store.open(rest)
    recorded = of_workload(whole)
    learn, test = split(recorded.names, 0.3, 3)
    assert set(held.workflow_names) == {recorded.names[i] for i in test}
    card, tensors = modelfile.load(model)
    assert card.trained_on["sequences_digest"] == recorded.take(learn).digest()
    assert card.trained_on["workload_digest"] == whole.digest()
    assert not {recorded.names[i] for i in learn} & set(held.workflow_names)
    assert len(tensors["ptr"]) == len(learn) + 1


def test_a_measured_model_charges_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "m.safetensors"
    words = ["train", "predictor=knn", "workload=lmcache", "held_out=0.5", "--out", str(model), "--measure"]
    assert main(words) == 0
    assert "72 workflows" in capsys.readouterr().out
    policy = load("predictors", "knn", {"model": str(model)})
    cost = [policy.cost_ps(toy_host().profile, n) for n in (1, 720)]  # type: ignore[attr-defined]
    assert 0 < cost[0] < cost[1]


def test_a_table_holds_every_predictor_at_every_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t.json"
    predictors = ["markov(order=1)", "markov(order=3)", "knn", *(["mlp"] if HAS_TORCH else [])]
    words = [
        "train", f"predictor={','.join(predictors)}", "workload=hover", "--table", "--json", str(out),
        "sizes=20,200", "seeds=3", "epochs=2", "seed=5",
    ]  # fmt: skip
    assert main(words) == 0
    shown = capsys.readouterr().out
    body = json.loads(out.read_text())
    cells = {(r["predictor"], r["learned_from"], r["step"]): r for r in body["rows"]}
    assert set(cells) == {(p, n, k) for p in predictors for n in (20, 200) for k in (1, 2, 3)} | {
        ("Bayes ceiling", 200, k) for k in (1, 2, 3)
    }
    for (predictor, _, step), row in cells.items():
        assert row["low"] <= row["top1"] <= row["high"]
        assert set(row["by_seed"]) == {"5", "6", "7"}
        assert f"{row['top1']:.4f}" in shown
        for seed, value in row["by_seed"].items():
            assert value <= cells["Bayes ceiling", 200, step]["by_seed"][seed] + 0.02, predictor
    base = cells["markov(order=3)", 200, 1]
    assert base["minus_baseline"]["mean"] == 0
    gain = cells["markov(order=1)", 200, 1]["minus_baseline"]["mean"]
    assert gain == pytest.approx(cells["markov(order=1)", 200, 1]["top1"] - base["top1"])
    assert gain < 0


def test_recorded_workflows_have_no_ceiling(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["train", "predictor=markov", "workload=lmcache", "--table", "sizes=500", "seeds=2", "seed=1"])
        == 0
    )
    shown = capsys.readouterr().out
    assert "no ceiling" in shown
    assert "can be learned from" in shown  # fewer than asked for


def test_accuracy_counts_every_step_a_workflow_gets_to() -> None:
    runs = ((0, 1), (0, 1, 1))
    blank = tuple(np.zeros((len(r), 64), dtype=np.float32) for r in runs)
    test = Sequences(("x", "y"), ("a", "b"), runs, blank)

    def always_b_then_end(views: list[WorkflowView]) -> list[np.ndarray]:
        rows = np.zeros((3, 3), dtype=np.float32)
        rows[0, 1] = rows[1, 2] = rows[2, 0] = 1
        return [rows for _ in views]

    # Next agent b: 3 of 5 positions. END two ahead: true for 2 of the 3 positions that get there. None is a.
    assert train_table.accuracy(always_b_then_end, test) == pytest.approx([3 / 5, 2 / 3, 0])  # type: ignore[arg-type]


def test_the_ceiling_is_the_process_that_made_the_workload() -> None:
    whole = workloads.open("hover")
    process = ceilings.hover_process(whole.provenance, whole.agents)
    assert sum(process.values()) == pytest.approx(1)
    runs = Counter(of_workload(whole).runs)
    assert set(runs) == set(process)
    for run, chance in process.items():
        deviation = (chance * (1 - chance) / whole.n_workflows) ** 0.5
        assert abs(runs[run] / whole.n_workflows - chance) < 4 * deviation


def test_no_forecast_beats_the_ceiling_in_expectation() -> None:
    process = {(0, 1): 0.5, (0, 0, 1): 0.3, (1,): 0.2}
    ceiling = ceilings.Ceiling(process, 2, 2)
    # Positions: 0 (0.8: then 1 with 0.5, 0 with 0.3), 0 0 (0.3, then 1), ends after 0 1, 0 0 1 and 1 (1.0 together).
    first = (0.5 + 0.3 + 1.0) / (0.8 + 0.3 + 1.0)
    second = (0.5 + 0.3) / (
        0.8 + 0.3
    )  # END after 0 1, or 1 after 0 0: the first is likelier; END after 0 0 1 is sure
    assert ceiling.expected() == pytest.approx([first, second])
    row = ceiling.forecaster()([WorkflowView(0, (0,), 0)])[0]
    np.testing.assert_allclose(row, [[0.3 / 0.8, 0.5 / 0.8, 0], [0, 0.3 / 0.8, 0.5 / 0.8]], rtol=1e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["predictor=graphsag", "workload=hover"],
            "unknown trainable predictor 'graphsag'; did you mean 'graphsage'",
        ),
        (["predictor=oracle", "workload=hover"], "unknown trainable predictor 'oracle'"),
        (["predictor=markov", "workload=hovr", "--out", "m.safetensors"], "did you mean 'hover'"),
        (
            ["predictor=markov", "workload=hover"],
            "say where the model goes, such as --out markov.safetensors",
        ),
        (["predictor=markov", "workload=hover", "--out", "m.bin"], "ends in .safetensors"),
        (
            ["predictor=markov", "workload=hover", "--out", "m.safetensors", "--held-out", "r.csv"],
            "ends in .workload",
        ),
        (["predictor=markov"], "name what to learn from"),
        (
            ["predictor=markov", "workload=hover", "epoch=3"],
            "unknown option of train 'epoch'; did you mean 'epochs'",
        ),
        (["predictor=markov", "workload=hover", "epochs=0"], "epochs=0, allowed: 1 to 10000"),
        (["predictor=markov", "workload=hover", "seeds=x"], "seeds='x': expected int"),
        (["predictor=markov", "workload=hover", "sizes=5,0"], "sizes=0, expected at least 1"),
        (["markov"], "expected OPTION=VALUE"),
        (["predictor=markov", "workload=hover", "--tabel"], "unrecognized arguments: --tabel"),
        (["predictor=markov", "workload=hover", "--table", "--out", "m.safetensors"], "keeps none"),
        (["predictor=markov", "workload=hover", "--json", "t.json"], "--json belongs to --table"),
        (
            ["predictor=markov", "workload=hover", "held_out=1", "--out", "m.safetensors"],
            "held_out=1.0, allowed",
        ),
    ],
)
def test_a_word_that_cannot_be_is_refused_in_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *words]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(HAS_TORCH, reason="says what to do without torch")
def test_a_fit_without_torch_says_what_to_install(tmp_path: Path) -> None:
    assert main(["train", "predictor=mlp", "workload=hover", "--out", str(tmp_path / "m.safetensors")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_fit_s_options_are_options_of_the_command() -> None:
    options = read_options(
        ["workload=hover", "epochs=7", "dropout=0", "seed=4", "sizes=3,1", "workflows=null"]
    )
    assert options == replace(
        TrainOptions(),
        workload="hover",
        seed=4,
        sizes=(3, 1),
        fit=replace(options.fit, epochs=7, dropout=0.0, seed=4),
    )
    with pytest.raises(InputError, match="unknown option of train 'fit'"):
        read_options(["fit=3"])
