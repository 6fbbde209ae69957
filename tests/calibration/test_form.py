"""Laws of the step-cost form and of the shapes beneath it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration import constants as data
from calibration.form import knot_tokens, linear_s, smooth_max
from calibration.gpus import GPUS, gpu
from calibration.models import MODELS, model
from traces.errors import InputError

POSITIVE = st.floats(1e-9, 1e3)


@given(POSITIVE, POSITIVE, st.floats(1.0, 6.0))
def test_smooth_maximum_lies_between_maximum_and_sum(a: float, b: float, power: float) -> None:
    got = smooth_max(a, b, power)
    assert max(a, b) * (1 - 1e-12) <= got <= (a + b) * (1 + 1e-12)
    assert got <= max(a, b) * 2 ** (1 / power) * (1 + 1e-12)
    assert got == smooth_max(b, a, power)


@given(POSITIVE, POSITIVE)
def test_smooth_maximum_tends_to_its_limits(a: float, b: float) -> None:
    assert smooth_max(a, b, 1.0) == pytest.approx(a + b)
    assert smooth_max(a, b, 400.0) == pytest.approx(max(a, b), rel=2e-3)
    assert smooth_max(a, 0.0, 2.0) == a


def test_knots_hold_every_count_to_64_then_every_8_to_512() -> None:
    knots = knot_tokens()
    assert knots[:64] == tuple(range(1, 65))
    assert [k for k in knots if 64 < k <= 512] == list(range(72, 513, 8))
    assert knots[-1] == 32768
    assert max(b / a for a, b in pairwise(knots[64:])) <= 1.125


@pytest.mark.parametrize(
    ("name", "billions", "kv_bytes"),
    [
        ("Qwen3-8B", 8.19, 147456),
        ("Qwen3-14B", 14.77, 163840),
        ("Qwen3-32B", 32.76, 262144),
        ("Qwen3-30B-A3B", 30.53, 98304),
        ("Qwen2.5-3B", 3.09, 36864),
        ("Llama-3.1-8B", 8.03, 131072),
        ("Llama-3.1-70B", 70.55, 327680),
        ("gpt-oss-20b", 20.91, 49152),
    ],
)
def test_shapes_give_the_published_parameter_counts(name: str, billions: float, kv_bytes: int) -> None:
    assert MODELS[name].params / 1e9 == pytest.approx(billions, abs=0.01)
    assert MODELS[name].kv_bytes_per_token() == kv_bytes


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_tensor_parallelism_divides_weights_heads_and_kv(tp: int) -> None:
    shape = model("Llama-3.1-70B")
    shard = shape.shard(tp)
    assert shard.heads * tp == shape.heads
    assert shard.kv_bytes_per_token() * tp == shape.kv_bytes_per_token()
    assert shard.dense_params * tp == shape.shard(1).dense_params
    whole = shape.weight_bytes("bf16")
    assert whole <= shard.weight_bytes("bf16") * tp <= whole + tp * 2 * shape.shard(1).norm_params


def test_a_gpu_keeps_at_least_one_kv_head() -> None:
    shape = model("Qwen2.5-3B")
    assert shape.shard(2).kv_bytes_per_token() == shape.shard(8).kv_bytes_per_token()


@pytest.mark.parametrize(
    ("name", "tp", "message"),
    [
        ("Qwen3-14B", 3, "tp=3 does not divide Qwen3-14B: heads=40 % 3 = 1"),
        ("Qwen3-14B", 5, "tp=5 does not divide Qwen3-14B: intermediate=17408 % 5 = 3"),
        ("Qwen3-14B", 0, "tp=0: expected a whole number of at least 1"),
    ],
)
def test_a_group_that_cannot_share_a_model_is_refused(name: str, tp: int, message: str) -> None:
    with pytest.raises(InputError) as e:
        model(name).shard(tp)
    assert str(e.value) == message


def test_kv_heads_must_divide_or_be_divided() -> None:
    odd = replace(model("Qwen3-8B"), heads=36, kv_heads=6, intermediate=12000)
    with pytest.raises(InputError, match="tp=4 neither divides nor is a multiple of Qwen3-8B's kv_heads=6"):
        odd.shard(4)


@given(tokens=st.integers(1, 4096), more=st.integers(1, 4096), name=st.sampled_from(sorted(MODELS)))
def test_smooth_maximum_never_falls_with_tokens_dense_or_moe(tokens: int, more: int, name: str) -> None:
    shard, g = model(name).shard(1), gpu("H100")
    # Without the knots: with them it is the profile's table that never falls (test_profiles).
    c = replace(data.constants("h100_sxm:bf16"), knots=())
    low = linear_s(shard, g, shard.model.precision, c, tokens)
    assert linear_s(shard, g, shard.model.precision, c, tokens + more) >= low


def test_a_mixture_reads_all_experts_only_in_large_steps() -> None:
    shard, g = model("Qwen3-30B-A3B").shard(1), gpu("H200")
    c = replace(data.constants("h200_sxm:bf16"), flops=0.0, layer_us=0.0, weights=1.0, knots=())

    def read_bytes(tokens: int) -> float:
        head = 2 * shard.head_params
        return linear_s(shard, g, "bf16", c, tokens) * g.bytes_per_s - head

    dense, expert = shard.dense_bytes("bf16"), shard.expert_bytes("bf16")
    # One token reads its 8 experts; 500 tokens leave none of the 128 unread (expected 1e-12 of them).
    assert read_bytes(1) == pytest.approx(dense + 8 * expert, rel=1e-9)
    assert read_bytes(2) == pytest.approx(dense + 128 * (1 - (120 / 128) ** 2) * expert, rel=1e-9)
    assert read_bytes(500) == pytest.approx(dense + 128 * expert, rel=1e-9)


def test_all_reduce_costs_nothing_on_one_gpu_and_grows_with_the_message() -> None:
    assert data.all_reduce_us(gpu("H200"), 1, 1 << 20) == 0
    assert data.all_reduce_us(gpu("H200"), 2, 1 << 20) == pytest.approx(12.4, abs=0.2)
    # Between two sizes of the table, and beyond its last one, along the straight line.
    assert data.all_reduce_us(gpu("H200"), 2, 3 << 19) == pytest.approx((12.4 + 20.5) / 2, abs=0.2)
    assert data.all_reduce_us(gpu("H200"), 2, 1 << 30) > data.all_reduce_us(gpu("H200"), 2, 1 << 29)
    # Without NVLink the same message takes longer.
    assert data.all_reduce_us(gpu("RTX4090"), 2, 1 << 20) > 3 * data.all_reduce_us(gpu("H200"), 2, 1 << 20)
    with pytest.raises(InputError, match=r"^tp=16: all-reduce times are known for 1, 2, 4 and 8 GPUs$"):
        data.all_reduce_us(gpu("H200"), 16, 1)


def test_gpu_names_are_forgiving_and_unknown_ones_name_the_nearest() -> None:
    assert gpu("rtx-4090") is GPUS["RTX4090"]
    with pytest.raises(
        InputError, match=r"^unknown gpu 'H201'; did you mean 'H200'\? allowed: A100, A6000, "
    ):
        gpu("H201")
