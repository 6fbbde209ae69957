"""What predictors learn from and are kept in: model files, splits, windows, the text stream."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from policies.api import WorkflowView
from policies.laws import toy_host
from policies.registry import load
from policies.training import modelfile, tables, text
from policies.training.fitting import FitConfig, train, transition
from policies.training.sequences import Sequences, of_workload, original, split, windows
from traces import draws, resample, workloads
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.schema import StageKind, Workload

HOST = toy_host()
RUNS = ((0, 1, 2), (0, 1, 2), (1, 0), (2, 1, 1, 0))


def toy(runs: tuple[tuple[int, ...], ...] = RUNS, agents: tuple[str, ...] = ("a", "b", "c")) -> Sequences:
    vectors = tuple(np.zeros((len(r), text.DIMS), dtype=np.float32) for r in runs)
    return Sequences(tuple(f"w{i}" for i in range(len(runs))), agents, runs, vectors)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.safetensors"
    train("markov", toy(), FitConfig(), path)
    return path


def test_a_model_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    tensors = {
        "b": np.array([[1.5, -2.0]], dtype=np.float32),
        "a": np.arange(3, dtype=np.int64),
        "c": np.zeros((0, 4), np.int32),
    }
    card = modelfile.Card("mlp", ("x", "y"), {"hidden": 3}, {"seed": 7}, {"batch": 1})
    modelfile.save(path, card, tensors)
    got, back = modelfile.load(path)
    assert got == card
    assert back.keys() == tensors.keys()
    for name, value in tensors.items():
        assert back[name].dtype == value.dtype
        np.testing.assert_array_equal(back[name], value)


def test_equal_models_are_equal_bytes(tmp_path: Path) -> None:
    one, two = {"a": np.ones(2, np.float32), "b": np.ones(1, np.int32)}, {}
    for name in reversed(one):
        two[name] = one[name]
    assert modelfile.encode(one) == modelfile.encode(two)


def test_the_tensor_file_is_a_safetensors_file() -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(3, dtype=np.int64)}
    back = safetensors.load(modelfile.encode(tensors))
    for name, value in tensors.items():
        np.testing.assert_array_equal(back[name], value)
    mine = modelfile.decode(safetensors.save(tensors), Path("theirs"))
    np.testing.assert_array_equal(mine["a"], tensors["a"])


def test_a_changed_file_is_refused_by_its_digest(model: Path) -> None:
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"m\.safetensors: its digest is \w+, m\.json says \w+"):
        modelfile.load(model)


def test_every_cut_or_odd_byte_is_refused_in_words(model: Path) -> None:
    content = model.read_bytes()
    for i in range(len(content)):
        with pytest.raises(InputError):
            modelfile.decode(content[:i], model)
    for seed in range(300):
        at = draws.bits(seed, "where") % len(content)
        odd = bytearray(content)
        odd[at] ^= 1 + draws.bits(seed, "what") % 255
        with contextlib.suppress(InputError):  # anything else is a fault; some bytes are just other numbers
            modelfile.decode(bytes(odd), model)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}, "dtype 'F64', allowed: F32"),
        ({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, "do not hold"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, "do not hold"),
        ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "not whole numbers"),
        (
            {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
            "8 bytes of data, of which tensors name 4",
        ),
        ({"a": {"dtype": "F32", "shape": [2]}}, "no 'data_offsets'"),
        ({"a": 3}, "no 'dtype'"),
        ([], "expected a JSON object"),
    ],
)
def test_a_header_that_lies_is_refused(header: object, words: str, tmp_path: Path) -> None:
    head = json.dumps(header).encode()
    content = len(head).to_bytes(8, "little") + head + np.ones(2, "<f4").tobytes()
    with pytest.raises(InputError, match=words):
        modelfile.decode(content, tmp_path / "m")


def test_a_value_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    content = modelfile.encode({"a": np.array([np.nan], np.float32)})
    with pytest.raises(InputError, match="field 'a': a value is not finite"):
        modelfile.decode(content, tmp_path / "m")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "field 'format'"),
        ({"version": 2}, "field 'format'"),
        ({"agents": ["a", "a"]}, "field 'agents'"),
        ({"agents": [1]}, "field 'agents'"),
        ({"spec": {"hidden": -1}}, "field 'spec'"),
        ({"cost_ps": {"batch": 1.5}}, "field 'cost_ps'"),
        ({"digest": None}, "field 'digest'"),
    ],
)
def test_a_card_that_lies_is_refused(model: Path, change: dict[str, object], words: str) -> None:
    card = model.with_suffix(".json")
    card.write_text(json.dumps({**json.loads(card.read_text()), **change}))
    with pytest.raises(InputError, match=words):
        modelfile.load(model)


def test_a_file_beyond_the_limit_is_not_read(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelfile, "_MAX_TENSOR_BYTES", 16)
    with pytest.raises(InputError, match="larger than"):
        modelfile.load(model)


def test_a_missing_model_is_refused(tmp_path: Path) -> None:
    for name in ("markov", "knn", "graphsage"):
        with pytest.raises(InputError, match="No such file"):
            load("predictors", name, {"model": str(tmp_path / "no.safetensors")})
    with pytest.raises(InputError, match=r"ends in \.safetensors"):
        modelfile.load("model.bin")


def test_counting_models_start_where_learning_online_ends(model: Path) -> None:
    for name in ("markov", "knn"):
        given = load("predictors", name, {"model": str(model)})
        started = given.new_state(HOST)
        online = load("predictors", name)
        learnt = online.new_state(HOST)
        for run in RUNS:
            for t in range(1, len(run) + 1):
                online.observe(learnt, WorkflowView(0, run[:t], 0))  # type: ignore[attr-defined]
            online.workflow_finished(learnt, WorkflowView(0, run, 0))  # type: ignore[attr-defined]
        for prefix in ((0,), (0, 1), (2, 1, 1), (1, 1, 1, 1)):
            view = WorkflowView(9, prefix, 0)
            np.testing.assert_array_equal(given.forecast(started, view), online.forecast(learnt, view))  # type: ignore[attr-defined]


def test_a_counting_model_follows_the_names_of_agents(model: Path) -> None:
    policy = load("predictors", "markov", {"model": str(model)})
    plain = policy.forecast(policy.new_state(HOST), WorkflowView(0, (0, 1), 0))  # type: ignore[attr-defined]
    turned = policy.new_state(replace(HOST, agents=("c", "b", "a")))
    np.testing.assert_array_equal(policy.forecast(turned, WorkflowView(0, (2, 1), 0)), plain[:, [2, 1, 0, 3]])  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="not trained on agent 'z'"):
        policy.new_state(replace(HOST, agents=("a", "z")))
    card, tensors = modelfile.load(model)
    modelfile.save(model, card, {**tensors, "ptr": tensors["ptr"][::-1].copy()})
    with pytest.raises(InputError, match="not recorded sequences"):
        policy.new_state(HOST)


def test_no_workflow_is_on_both_sides_of_a_split() -> None:
    names = of_workload(workloads.open("hover")).names
    for seed in range(3):
        learn, test = split(names, 0.3, seed)
        assert not set(learn) & set(test)
        assert sorted(learn + test) == list(range(len(names)))
        assert abs(len(test) / len(names) - 0.3) < 0.04
    assert split(names, 0.3, 0) == split(names, 0.3, 0) != split(names, 0.3, 1)


def test_copies_are_on_the_side_of_their_original_whatever_the_file() -> None:
    workload = workloads.open("lmcache")
    learn, _ = split(workload.workflow_names, 0.3, 4)
    learnt = {workload.workflow_names[i] for i in learn}
    copied = resample.resample(workload, 100, 8)
    more, held = split(copied.workflow_names, 0.3, 4)
    assert {original(copied.workflow_names[i]) for i in more} == learnt
    assert not learnt & {original(copied.workflow_names[i]) for i in held}


def test_a_split_without_two_sides_is_refused() -> None:
    for share, words in ((0.0, "allowed"), (1.0, "allowed"), (1e-9, "leaves 3 to learn from, 0 held out")):
        with pytest.raises(InputError, match=words):
            split(["a", "b", "c"], share, 0)


def test_windows_pair_every_prefix_with_what_followed() -> None:
    w = windows(toy(((0, 1, -1, 2),)), history=3, horizon=3)
    assert w.agents.tolist() == [[3, 3, 0], [3, 0, 1], [0, 1, 3], [1, 3, 2]]
    assert w.target.tolist() == [[1, -1, 2], [-1, 2, 3], [2, 3, -1], [3, -1, -1]]


def test_the_transition_matrix_holds_the_shares_of_who_followed_whom() -> None:
    m = transition(toy())
    assert m[0].tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(m[1], [2 / 5, 1 / 5, 2 / 5, 0])
    assert m[3].tolist() == [0, 0, 0, 0]


def chain(ids: bool) -> Workload:
    b = WorkloadBuilder("toy", 16)
    b.workflow("w")
    first = b.llm(100, 4, agent="a", **({"output_ids": np.array([7, 8, 9, 7], np.uint32)} if ids else {}))
    tool = b.delay(StageKind.TOOL, 10, parents=[first], agent="t")
    b.llm(700, 2, parents=[tool], agent="b", **({"output_ids": np.array([1, 2], np.uint32)} if ids else {}))
    return b.build({})


def test_the_text_of_a_call_is_its_length_and_the_outputs_before_it() -> None:
    plain, known = text.TextStream(chain(False)), text.TextStream(chain(True))
    v = known.vector(2)
    assert v.dtype == np.float32
    assert np.flatnonzero(v[:32]).tolist() == [9, 16 + (700 - 512) // 32]
    assert np.linalg.norm(v[32:]) == pytest.approx(1)
    np.testing.assert_array_equal(v, text.vector(700, np.array([7, 8, 9, 7], np.uint32)))
    assert not plain.vector(2)[32:].any()
    assert not known.vector(0)[32:].any()  # nothing came before


def test_the_text_of_a_call_tells_nothing_of_its_own_output() -> None:
    a, b = chain(True), chain(True)
    assert b.output_ids is not None
    changed = b.output_ids.copy()
    changed[-2:] = 99
    b = replace(b, output_ids=changed, output_tokens=b.output_tokens + np.int32([0, 0, 50]))
    np.testing.assert_array_equal(text.TextStream(a).vector(2), text.TextStream(b).vector(2))


def test_a_table_of_sequences_keeps_them() -> None:
    t = tables.tensors(toy())
    assert t["ptr"].tolist() == [0, 3, 6, 8, 12]
    assert t["agents"].tolist() == [0, 1, 2, 0, 1, 2, 1, 0, 2, 1, 1, 0]
