"""KV capacity: a hand-worked case, block counts that real engines reported, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration import catalog
from calibration.__main__ import main
from calibration.memory import Beside, KvCapacity, activation_bytes, draft_beside, kv_blocks
from calibration.models import ModelShape, model
from calibration.overhead import kernel_profile
from policies.costs import Profile
from sim.config import EngineConfig
from traces.errors import InputError

LLAMA = "H100x1--Llama-3.1-8B--bf16--vllm"


def test_kv_blocks_match_the_arithmetic_done_by_hand() -> None:
    profile = catalog.open(LLAMA)
    # 79.1 GiB of memory; 8,030,261,248 bf16 weights; 1 GB + 4·4096·2048 bytes of states, and the sampler's
    # 12·128256·128 bytes against the MLP's 6·14336·2048; a token takes 2·32·8·128·2 bytes of KV.
    budget = int(0.9 * int(79.1 * 2**30))
    weights = 2 * 8_030_261_248
    sampler, mlp = 12 * 128_256 * 128, 6 * 14_336 * 2048
    assert sampler > mlp
    by_hand = (budget - weights - (10**9 + 4 * 4096 * 2048 + sampler)) // (16 * 131_072)
    capacity = kv_blocks(profile, EngineConfig(max_num_seqs=128, max_num_batched_tokens=2048))
    assert capacity.blocks == by_hand == 28_204
    assert capacity.source_text == (
        "computed: 0.9 x 79.10 - weights 14.96 - activations 1.15 = 55.09 GiB a GPU"
        " / 2097152 bytes a block of 16"
    )


@pytest.mark.parametrize(
    ("shape", "tp", "max_num_batched_tokens", "reported"),
    [
        (ModelShape("Llama-2-7b", 32, 4096, 32, 32, 128, 11008, 32000, 4096), 1, 2048, 7463),
        (ModelShape("Qwen2.5-7B", 28, 3584, 28, 4, 128, 18944, 152064, 32768), 1, 2048, 65352),
        (ModelShape("Qwen2.5-7B", 28, 3584, 28, 4, 128, 18944, 152064, 32768), 1, 1024, 65368),
        (ModelShape("Mistral-Nemo", 40, 5120, 32, 8, 128, 14336, 131072, 131072), 2, 1024, 48009),
        (ModelShape("Mistral-Nemo", 40, 5120, 32, 8, 128, 14336, 131072, 131072), 1, 2048, 19251),
        (ModelShape("Yi-34B", 60, 7168, 56, 8, 128, 20480, 64000, 4096), 2, 2048, 20793),
        (model("Llama-3.1-70B"), 4, 2048, 30425),
        (model("Llama-3.1-70B"), 4, 8192, 30251),
    ],
)
def test_kv_blocks_agree_with_what_vllm_reported(
    shape: ModelShape, tp: int, max_num_batched_tokens: int, reported: int
) -> None:
    # H100, gpu_memory_utilization 0.9, max_num_seqs 128, vLLM 0.15 (BLIS workload files, Apache-2.0).
    shard = shape.shard(tp)
    profile = replace(
        kernel_profile("H100", "Llama-3.1-8B", "bf16", 1),
        weight_bytes=shard.weight_bytes("bf16"),
        kv_bytes_per_token=shard.kv_bytes_per_token(),
        identity={"gpu": "H100", "tp": tp, "model": shape.name, "precision": "bf16", "engine": "vllm"},
        provenance={"shape": {f: getattr(shape, f) for f in shape.__dataclass_fields__}},
    )
    engine = EngineConfig(max_num_seqs=128, max_num_batched_tokens=max_num_batched_tokens)
    tolerance = 0.014 if shape.name == "Llama-2-7b" else 0.005
    assert kv_blocks(profile, engine).blocks == pytest.approx(reported, rel=tolerance)


def test_a_given_block_count_wins_and_is_named_as_given() -> None:
    profile = catalog.open(LLAMA)
    given_count = EngineConfig(num_gpu_blocks=77)
    assert kv_blocks(profile, given_count) == KvCapacity(77, "given: engine.num_gpu_blocks")


def test_no_room_for_kv_is_refused_with_the_arithmetic() -> None:
    profile = catalog.open("RTX4090x1--Llama-3.1-8B--bf16--vllm")
    with pytest.raises(InputError) as e:
        kv_blocks(profile, EngineConfig(gpu_memory_utilization=0.6))
    assert str(e.value) == (
        "RTX4090x1--Llama-3.1-8B--bf16--vllm: no memory for KV: 0.6 x 23.60 - weights 14.96"
        " - activations 1.71 = -2.51 GiB a GPU; one block needs 2097152 bytes"
    )


@given(
    low=st.floats(0.5, 0.95),
    more=st.floats(0, 0.05),
    seqs=st.integers(1, 1024),
    tokens=st.integers(1024, 16384),
)
def test_more_memory_never_gives_fewer_blocks_and_more_work_in_a_step_never_more(
    low: float, more: float, seqs: int, tokens: int
) -> None:
    profile = opened()
    base = EngineConfig(gpu_memory_utilization=low, max_num_seqs=seqs, max_num_batched_tokens=tokens)
    blocks = kv_blocks(profile, base).blocks
    assert kv_blocks(profile, replace(base, gpu_memory_utilization=low + more)).blocks >= blocks
    assert kv_blocks(profile, replace(base, max_num_batched_tokens=2 * tokens)).blocks <= blocks


def opened() -> Profile:
    return catalog.open("H200x1--Qwen3-8B--bf16--vllm")


def test_a_profile_without_a_shape_reserves_two_gib_for_activations() -> None:
    assert activation_bytes(None, 1, 1024, 8192) == 2 << 30


def test_a_malformed_shape_is_named() -> None:
    profile = replace(catalog.open(LLAMA), provenance={"shape": {"layer": 3}})
    with pytest.raises(
        InputError,
        match=r"field 'provenance.shape': expected the fields dense_intermediate, dense_layers, experts",
    ):
        kv_blocks(profile, EngineConfig())


def test_an_eagle_layer_is_one_layer_and_a_projection() -> None:
    target = model("Llama-3.1-8B")
    found = draft_beside(target, "eagle", 1)
    layer = 4096 * (32 + 2 * 8) * 128 + 32 * 128 * 4096 + 3 * 4096 * 14336
    assert found.draft_weight_bytes == 2 * (layer + 2 * 4096 * 4096 + 3 * 4096)
    assert found.draft_kv_bytes_per_token * target.layers == catalog.open(LLAMA).kv_bytes_per_token


def test_a_draft_model_takes_weights_and_a_share_of_every_block() -> None:
    profile, engine = catalog.open(LLAMA), EngineConfig()
    alone = kv_blocks(profile, engine).blocks
    draft = draft_beside(model("Llama-3.1-8B"), "Qwen2.5-3B", 1)
    assert draft.draft_weight_bytes == model("Qwen2.5-3B").weight_bytes("bf16")
    both = kv_blocks(profile, engine, draft)
    block = 16 * profile.kv_bytes_per_token
    left = alone * block - draft.draft_weight_bytes
    assert both.blocks == pytest.approx(left / (block + 16 * draft.draft_kv_bytes_per_token), abs=1)
    assert "draft model" in both.source_text


def test_graphs_come_off_the_pool_only_where_they_are_counted() -> None:
    profile, engine = catalog.open(LLAMA), EngineConfig()
    alone = kv_blocks(profile, engine).blocks
    assert kv_blocks(profile, engine, Beside(graphs=64)).blocks == alone
    counted = kv_blocks(profile, engine, Beside(graphs=64, graphs_counted=True)).blocks
    assert alone - counted == pytest.approx(
        64 * profile.graph_bytes / (16 * profile.kv_bytes_per_token), abs=1
    )


def test_a_draft_that_does_not_divide_is_refused() -> None:
    with pytest.raises(InputError, match="tp=3 does not divide"):
        draft_beside(model("Llama-3.1-8B"), "Qwen2.5-3B", 3)


def test_the_command_prints_the_arithmetic_and_what_the_engine_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["memory", LLAMA, "--engine", "max_num_seqs=128", "max_num_batched_tokens=2048"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "= 28204 blocks of 16 tokens, 451264 tokens" in out
    assert "weights" in out
    assert main([*words, "--graphs", "67", "--draft", "eagle", "--reported", "27000"]) == 0
    out = capsys.readouterr().out
    assert "reported: 27000 blocks" in out
    assert "draft model" in out
    assert "67 graphs" in out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--draft", "eagel"], "eagle"),
        (["--engine", "max_num_sequences=3"], "max_num_seqs"),
        (["--reported", "0"], "--reported 0"),
        (["--graphs", "-1"], "--graphs -1"),
    ],
)
def test_a_wrong_word_is_one_line(more: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", LLAMA, *more]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
