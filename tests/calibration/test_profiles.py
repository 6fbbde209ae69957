"""Laws of every committed profile: monotone prices, exact round trip, reproducible bytes."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import build, catalog
from calibration.form import knot_tokens
from calibration.models import model
from policies.costs import Profile, parse_profile
from traces.errors import InputError

NAMES = catalog.names()


@cache
def opened(name: str) -> Profile:
    return catalog.open(name)


def test_catalogue_has_every_gpu_model_and_fp8_where_it_fits() -> None:
    parts = [catalog.parts(n) for n in NAMES]
    assert {p["gpu"] for p in parts} == {"H200", "H100", "A100", "RTX4090", "A6000"}
    assert {p["model"] for p in parts} == set(build.MODELS)
    assert {p["gpu"] for p in parts if p["precision"] == "fp8"} == {"H200", "H100", "RTX4090"}


@pytest.mark.parametrize("name", NAMES)
def test_profile_round_trips_and_says_where_it_is_from(name: str) -> None:
    profile = opened(name)
    assert profile.name == name
    assert parse_profile(profile.to_json()) == profile
    assert profile.linear_tokens == knot_tokens()
    assert profile.error["mape_percent"] > 0
    assert profile.error["how"]
    assert profile.provenance["sources"]


@pytest.mark.parametrize("name", NAMES)
def test_linear_price_never_falls_with_tokens(name: str) -> None:
    table = opened(name).linear_table(9000)
    assert table[0] == 0
    assert all(a <= b for a, b in pairwise(table))
    assert opened(name).linear_ps_at(100_000) > table[-1]


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    tokens=st.integers(1, 40_000),
    seqs=st.integers(1, 1024),
    context=st.integers(0, 10_000_000),
    pairs=st.integers(0, 10**10),
    grow=st.integers(1, 5000),
)
def test_step_price_never_falls_with_tokens_context_batch_or_pairs(
    name: str, tokens: int, seqs: int, context: int, pairs: int, grow: int
) -> None:
    price = opened(name).step_ps
    base = price(tokens, seqs, context, pairs)
    assert price(tokens + grow, seqs, context, pairs) >= base
    assert price(tokens, seqs + grow, context, pairs) > base
    assert price(tokens, seqs, context + grow, pairs) > base
    assert price(tokens, seqs, context, pairs + grow) >= base


@pytest.mark.parametrize(
    "cell",
    [
        build.Cell("H200", 1, "Qwen3-32B", "bf16"),
        build.Cell("H100", 4, "Llama-3.1-70B", "fp8"),
        build.Cell("A6000", 2, "Qwen3-14B", "bf16"),
    ],
)
def test_committed_profile_is_what_the_build_writes(cell: build.Cell) -> None:
    profile = build.build(cell)
    committed = (catalog.PROFILES / f"{profile.name}.json").read_text(encoding="utf-8")
    assert profile.to_json() == committed


def test_every_possible_cell_is_committed_and_nothing_else() -> None:
    built = set()
    for cell in build.cells():
        try:
            built.add(build.build(cell, uncertainty=False).name)
        except InputError as e:
            assert "does not fit" in str(e)  # noqa: PT017 (the other branch is the common one)
    assert built == set(NAMES)


def test_impossible_cell_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(InputError) as e:
        build.build(build.Cell("H100", 1, "Llama-3.1-70B", "fp8"))
    assert str(e.value) == (
        "H100x1--Llama-3.1-70B--fp8 does not fit: 0.9 x 79.10 - weights 67.67 - activations 1.32 = 2.20 GiB"
        " a GPU for KV, at least 4 is needed"
    )


def test_cell_without_the_tensor_cores_is_refused() -> None:
    with pytest.raises(InputError, match=r"^A100 has no fp8 tensor cores: use precision bf16$"):
        build.build(build.Cell("A100", 1, "Qwen3-8B", "fp8"))


def test_a_bigger_group_reads_weights_faster_and_holds_fewer_bytes_a_gpu() -> None:
    one, two = opened("H200x1--Qwen3-32B--bf16--vllm"), opened("H200x2--Qwen3-32B--bf16--vllm")
    assert two.kv_bytes_per_token * 2 == one.kv_bytes_per_token
    assert one.weight_bytes / 2 <= two.weight_bytes < one.weight_bytes * 0.51
    assert one.linear_ps_at(1) / 2 < two.linear_ps_at(1) < one.linear_ps_at(1)
    # Half the heads; efficiency is fitted a TP size, so not exactly half the price.
    assert two.attention_as_per_pair * 2 == pytest.approx(one.attention_as_per_pair, rel=0.1)


def test_names_parts_and_find_agree() -> None:
    found = catalog.find(gpu="H200", tp=2, model="Qwen3-32B")
    assert found == ["H200x2--Qwen3-32B--bf16--vllm", "H200x2--Qwen3-32B--fp8--vllm"]
    assert catalog.find(gpu="A100", model="Llama-3.1-70B", tp=1) == []
    with pytest.raises(
        InputError, match=r"^unknown profile gpu 'H20'; did you mean 'H200'\? allowed: A100, "
    ):
        catalog.find(gpu="H20")


def test_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(InputError) as e:
        catalog.open("H200x1--Qwen3-32B--bf16--vlm")
    assert str(e.value) == (
        f"unknown profile 'H200x1--Qwen3-32B--bf16--vlm'; did you mean 'H200x1--Qwen3-32B--bf16--vllm'?; "
        f"{len(NAMES)} profiles: python -m calibration list"
    )


def test_model_names_are_read_as_published() -> None:
    assert model("meta-llama/Llama-3.1-70B-Instruct").name == "Llama-3.1-70B"
    assert model("Qwen/Qwen3-32B-FP8").name == "Qwen3-32B"
    with pytest.raises(InputError, match=r"^unknown model 'Qwen3-33B'; did you mean 'Qwen3-32B'\?"):
        model("Qwen3-33B")
