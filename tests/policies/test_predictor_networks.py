"""Laws of the predictors with weights. Serving needs no torch; what does is skipped where it is missing."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.api import WorkflowView
from policies.laws import check, toy_host
from policies.registry import find, load, names, source_digest
from policies.training import modelfile
from policies.training.fitting import FitConfig, train, transition
from policies.training.network import Batch, Network, Sizes, start_weights
from policies.training.sequences import Sequences, Windows, windows
from policies.training.text import DIMS
from traces import draws
from traces.errors import InputError

HOST = toy_host()
NETWORKS = [n for n in names("predictors") if find("predictors", n).trained]  # type: ignore[attr-defined]
SIZES = Sizes(agents=3, horizon=3, history=6, hidden=8)


def sequences(count: int = 120, agents: tuple[str, ...] = ("a", "b", "c")) -> Sequences:
    """Runs whose third agent is told by the first (through the prefix) and whose end is told by the text."""
    runs, text = [], []
    for w in range(count):
        first, long = w % 2, w // 2 % 2
        run = (first, 2, first, *((first, 2) if long else ()))
        vectors = np.zeros((len(run), DIMS), dtype=np.float32)
        vectors[:, long] = 1
        runs.append(run)
        text.append(vectors)
    return Sequences(tuple(f"w{i}" for i in range(count)), agents, tuple(runs), tuple(text))


def weights(name: str, sizes: Sizes = SIZES, seed: int = 0) -> dict[str, Any]:
    network = find("predictors", name)
    assert issubclass(network, Network)
    flow = transition(replace_agents(sequences(), sizes.agents))
    return {**start_weights(network.shapes(sizes), seed), "transition": flow}


def replace_agents(s: Sequences, count: int) -> Sequences:
    return replace(s, agents=tuple("abcdefgh"[:count]))


def untrained(name: str, folder: Path, agents: tuple[str, ...] = ("a", "b", "c")) -> str:
    """Write a model with the weights a fit starts from: enough for every law of serving."""
    sizes = replace(SIZES, agents=len(agents))
    path = folder / f"{name}.safetensors"
    modelfile.save(path, modelfile.Card(name, agents, asdict(sizes)), weights(name, sizes))
    return str(path)


@pytest.fixture(params=NETWORKS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_there_are_the_five_networks() -> None:
    assert NETWORKS == ["graphsage", "mlp", "r_gcn", "tcn", "transformer"]


def test_a_network_keeps_the_laws_of_predictors(name: str, tmp_path: Path) -> None:
    policy = load("predictors", name, {"model": untrained(name, tmp_path)})
    check(policy, range(2))
    check(load("predictors", "noise", {"inner": f"{name}(model={untrained(name, tmp_path)})"}), range(1))


def test_a_batch_forecasts_what_its_workflows_forecast_alone(name: str, tmp_path: Path) -> None:
    policy: Any = load("predictors", name, {"model": untrained(name, tmp_path)})
    state = policy.new_state(HOST)
    s = sequences(8)
    views = [WorkflowView(w, r[: 1 + w % 3], 0, s.text[w][0]) for w, r in enumerate(s.runs)]
    for view, together in zip(views, policy.forecasts(state, views), strict=True):
        np.testing.assert_allclose(policy.forecast(state, view), together, atol=1e-6)


def test_only_the_newest_agents_and_the_text_count(name: str, tmp_path: Path) -> None:
    policy: Any = load("predictors", name, {"model": untrained(name, tmp_path)})
    state = policy.new_state(HOST)
    text = np.eye(DIMS, dtype=np.float32)
    recent = (0, 1, 2, 0, 1, 2)
    base = policy.forecast(state, WorkflowView(0, recent, 0, text[0]))
    older = policy.forecast(state, WorkflowView(7, (2, 2, *recent), 9, text[0]))
    np.testing.assert_array_equal(base, older)
    assert np.abs(base - policy.forecast(state, WorkflowView(0, recent, 0, text[1]))).max() > 1e-4
    assert np.abs(base - policy.forecast(state, WorkflowView(0, (*recent[:-1], 1), 0, text[0]))).max() > 1e-4
    if name != "r_gcn":  # the others see further back than the newest agent, and where
        assert (
            np.abs(base - policy.forecast(state, WorkflowView(0, (1, 1, *recent[2:]), 0, text[0]))).max() > 0
        )


def test_agents_are_matched_by_name(name: str, tmp_path: Path) -> None:
    model = untrained(name, tmp_path, ("a", "b", "c", "d"))
    policy: Any = load("predictors", name, {"model": model})
    plain, turned = replace(HOST, agents=("a", "b", "c", "d")), replace(HOST, agents=("d", "c", "b", "a"))
    p = policy.forecast(policy.new_state(plain), WorkflowView(0, (0, 3, 1), 0))
    q = policy.forecast(policy.new_state(turned), WorkflowView(0, (3, 0, 2), 0))
    np.testing.assert_allclose(q, p[:, [3, 2, 1, 0, 4]], atol=1e-6)
    fewer = policy.forecast(policy.new_state(HOST), WorkflowView(0, (0, 1), 0))
    assert fewer.shape == (3, 4)
    np.testing.assert_allclose(fewer.sum(axis=1), 1, atol=1e-6)
    with pytest.raises(InputError, match=r"not trained on agent 'z'; it knows: a, b, c, d"):
        policy.new_state(replace(HOST, agents=("a", "z")))


def test_a_shorter_horizon_is_the_beginning_of_a_longer(name: str, tmp_path: Path) -> None:
    model = untrained(name, tmp_path)
    rows = {}
    for k in (1, 3):
        policy = load("predictors", name, {"model": model, "horizon": k})
        rows[k] = policy.forecast(policy.new_state(HOST), WorkflowView(0, (0, 2), 0))  # type: ignore[attr-defined]
    np.testing.assert_array_equal(rows[1], rows[3][:1])
    with pytest.raises(InputError, match="was trained for 3, allowed: 1 to 3"):
        load("predictors", name, {"model": model, "horizon": 4})


def test_an_untrained_predictor_says_how_to_train_it(name: str) -> None:
    with pytest.raises(InputError, match=f"python -m experiments train predictor={name}"):
        load("predictors", name)


def test_a_model_of_another_predictor_is_refused(tmp_path: Path) -> None:
    model = untrained("mlp", tmp_path)
    with pytest.raises(InputError, match="it is a mlp, not a tcn"):
        load("predictors", "tcn", {"model": model})
    with pytest.raises(InputError, match="it is a mlp, expected one of markov, knn"):
        load("predictors", "markov", {"model": model})


def test_weights_of_other_shapes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    card = modelfile.Card("mlp", ("a", "b", "c"), asdict(SIZES))
    modelfile.save(path, card, {**weights("mlp"), "deep": np.zeros((2, 2), dtype=np.float32)})
    with pytest.raises(InputError, match=r"tensor 'deep' has shape \(2, 2\), expected \(96, 16\)"):
        load("predictors", "mlp", {"model": str(path)})
    modelfile.save(path, replace(card, spec={}), weights("mlp"))
    with pytest.raises(InputError, match=r"spec\.agents is missing"):
        load("predictors", "mlp", {"model": str(path)})


def test_the_run_s_identity_follows_the_model_s_content(tmp_path: Path) -> None:
    model = untrained("mlp", tmp_path)
    first = source_digest(load("predictors", "mlp", {"model": model}))
    assert first == source_digest(load("predictors", "mlp", {"model": model}))
    card, tensors = modelfile.load(model)
    tensors["deep_b"] = tensors["deep_b"] + np.float32(1)
    modelfile.save(model, card, tensors)
    assert source_digest(load("predictors", "mlp", {"model": model})) != first


def test_measured_cost_is_charged_by_batch_and_workflow(tmp_path: Path) -> None:
    model = untrained("mlp", tmp_path)
    assert load("predictors", "mlp", {"model": model}).cost_ps(HOST.profile, 9) == 0  # type: ignore[attr-defined]
    card, tensors = modelfile.load(model)
    modelfile.save(model, replace(card, cost_ps={"batch": 1000, "workflow": 10}), tensors)
    noisy = load("predictors", "noise", {"inner": f"mlp(model={model})"})
    for policy in (load("predictors", "mlp", {"model": model}), noisy):
        assert policy.cost_ps(HOST.profile, 9) == 1090  # type: ignore[attr-defined]


def test_numpy_serves_what_torch_fits(name: str) -> None:
    torch = pytest.importorskip("torch")
    network = find("predictors", name)
    assert issubclass(network, Network)
    w = weights(name)
    agents = np.array(
        [[draws.bits(0, "agent", i, j) % 4 if j >= i else 3 for j in range(6)] for i in range(6)]
    )
    agents[:, -1] %= 3
    text = np.stack([np.roll(np.eye(1, DIMS, dtype=np.float32)[0], i) for i in range(6)])
    served = network.logits(np, network.prepared(w), Batch(agents, text), lambda x: x)
    fitted = network.logits(
        torch,
        {k: torch.from_numpy(v) for k, v in w.items()},
        Batch(torch.from_numpy(agents), torch.from_numpy(text)),
        lambda x: x,
    )
    np.testing.assert_allclose(served, fitted.numpy(), atol=1e-5)


def test_a_fit_learns_what_prefix_and_text_tell(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    s = sequences()
    path = tmp_path / "m.safetensors"
    config = FitConfig(epochs=60, batch=64, hidden=16, history=6, learning_rate=0.01, dropout=0.0)
    train(name, s, config, path)
    policy: Any = load("predictors", name, {"model": str(path)})
    state = policy.new_state(HOST)
    for run, text in zip(s.runs[:4], s.text[:4], strict=True):
        third = policy.forecast(state, WorkflowView(0, run[:2], 0, text[1]))
        assert third[0].argmax() == run[0]  # told by the first agent
        assert third[1].argmax() == (run[3] if len(run) > 3 else 3)  # told by the text
        assert third[0].max() > 0.9
        if len(run) > 3:
            assert third[2].argmax() == 2


def test_equal_seeds_fit_equal_weights_and_others_do_not(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    digests = [
        train(
            "graphsage", sequences(), FitConfig(seed=seed, epochs=3, hidden=8), tmp_path / f"{i}.safetensors"
        )
        for i, seed in enumerate((1, 1, 2))
    ]
    assert digests[0] == digests[1] != digests[2]
    card = json.loads((tmp_path / "0.json").read_text())
    assert card["trained_on"]["sequences_digest"] == sequences().digest()
    assert card["trained_on"]["fit"]["seed"] == 1


def test_steps_after_the_end_count_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import importlib

    fit = importlib.import_module("policies.predictors._torch_fit")
    rows = windows(sequences(4), 6, 3)
    z = torch.zeros((len(rows), SIZES.outputs))
    wild = z.reshape(-1, 3, 4).clone()
    wild[torch.from_numpy(rows.target) < 0] = torch.tensor([9.0, -9.0, 3.0, 1.0])
    index = np.arange(len(rows))
    assert fit._loss(z, rows, index, SIZES) == fit._loss(wild.reshape(len(rows), -1), rows, index, SIZES)
    ended = Windows(rows.agents, rows.text, np.where(rows.target < 0, 0, rows.target))
    assert fit._loss(wild.reshape(len(rows), -1), ended, index, SIZES) != fit._loss(z, ended, index, SIZES)
