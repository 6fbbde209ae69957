"""`vllm serve` arguments: every flag sets something, is said to be not modelled, or is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.vllm_args import VllmServe, parse, render
from sim.config import EngineConfig
from traces.errors import InputError


def test_flags_set_engine_model_group_and_precision() -> None:
    got = parse(
        "vllm serve Qwen/Qwen3-32B -tp 2 --max-num-seqs=64 --max_num_batched_tokens 4096 --block-size 32 "
        "--gpu-memory-utilization 0.85 --num-gpu-blocks-override 1000 --max-model-len 8K "
        "--no-enable-prefix-caching --scheduling-policy priority --quantization fp8 --port 8000"
    )
    assert got.config() == EngineConfig(
        block_tokens=32,
        max_num_seqs=64,
        max_num_batched_tokens=4096,
        max_model_len=8192,
        gpu_memory_utilization=0.85,
        num_gpu_blocks=1000,
        prefix_cache="none",
        queue="priority",
    )
    assert (got.model, got.tp, got.precision, got.notes) == ("Qwen/Qwen3-32B", 2, "fp8", ())


def test_what_is_not_modelled_is_said() -> None:
    got = parse(
        "m --max-num-seqs 8 --max-num-batched-tokens 2048 --kv-cache-dtype fp8 --enforce-eager -O3 "
        "--swap-space 4 --cpu-offload-gb 0 -pp 1 --async-scheduling "
        """--speculative-config '{"method": "ngram"}'"""
    )
    assert got.notes == (
        "assumed: --kv-cache-dtype fp8: KV is sized in 8 bits, its reads are priced as bf16",
        "not modelled: --enforce-eager: choose bucketer=eager",
        "not modelled: -O 3",
        "not modelled: --swap-space 4",
        "not modelled: --async-scheduling",
        "not modelled: --speculative-config (ngram): choose a drafter and a budget instead",
    )


@pytest.mark.parametrize(
    ("gpu", "seqs", "tokens"),
    [("H200", 1024, 8192), ("H100", 1024, 8192), ("A100", 256, 2048), ("A6000", 256, 2048)],
)
def test_defaults_follow_the_gpu_and_are_stated(gpu: str, seqs: int, tokens: int) -> None:
    got = parse("m", gpu=gpu)
    assert (got.engine["max_num_seqs"], got.engine["max_num_batched_tokens"]) == (seqs, tokens)
    assert got.notes == (
        f"default: --max-num-batched-tokens {tokens} (vLLM serving on {gpu})",
        f"default: --max-num-seqs {seqs} (vLLM serving on {gpu})",
    )
    assert (got.tp, got.precision) == (None, None)


def test_a_default_never_contradicts_what_was_given() -> None:
    assert parse("m --max-num-seqs 4000", gpu="A100").engine["max_num_batched_tokens"] == 4000
    assert parse("m --max-num-batched-tokens 512", gpu="H200").engine["max_num_seqs"] == 512


CASES = [
    (
        "--max-num-sequences 3",
        "unknown vllm serve flag '--max-num-sequences'; did you mean '--max-num-seqs'?",
    ),
    ("m --zzzzzz", "unknown vllm serve flag '--zzzzzz'"),
    ("m --max-num-seqs", "--max-num-seqs: expected a value after it"),
    ("m --max-num-seqs --port 1", "--max-num-seqs: expected a value after it"),
    ("m --max-num-seqs 0", "--max-num-seqs 0: expected a whole number of at least 1"),
    ("m --block-size 1.5", "--block-size 1.5: expected a whole number of at least 1"),
    ("m --gpu-memory-utilization 90", "--gpu-memory-utilization 90: expected a number from 0.05 to 1"),
    ("m --gpu-memory-utilization nan", "--gpu-memory-utilization nan: expected a number from 0.05 to 1"),
    (
        "m --scheduling-policy sjf",
        "unknown --scheduling-policy 'sjf'; allowed: fcfs, priority",
    ),
    (
        "m --quantization fp9",
        "unknown --quantization 'fp9'; did you mean 'fp8'? "
        "allowed: compressed-tensors, fbgemm_fp8, fp8, mxfp4",
    ),
    ("m --enforce-eager=1", "--enforce-eager=1: a switch takes no value"),
    ("m n", "vllm serve: two models given, 'm' and 'n'"),
    (
        "m --speculative-config {",
        "--speculative-config: not JSON: Expecting property name enclosed in double quotes",
    ),
    ("m --speculative-config 3", "--speculative-config: expected a JSON object"),
    ("m 'x", 'engine="m \'x": No closing quotation'),
    (
        "m --max-num-seqs 64 --max-num-batched-tokens 32",
        "engine.max_num_batched_tokens=32 is below engine.max_num_seqs=64: "
        "every sequence needs a token a step",
    ),
]


@pytest.mark.parametrize(("text", "message"), CASES, ids=[c[0] for c in CASES])
def test_wrong_arguments_answer_with_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as e:
        parse(text)
    assert str(e.value) == message


@given(
    model=st.one_of(st.none(), st.sampled_from(["org/m", "with space"])),
    tp=st.one_of(st.none(), st.integers(1, 8)),
    precision=st.sampled_from([None, "bf16", "fp8", "mxfp4"]),
    seqs=st.integers(1, 512),
    tokens=st.integers(512, 9000),
    utilization=st.floats(0.05, 1.0),
    blocks=st.one_of(st.none(), st.integers(1, 10**6)),
    length=st.one_of(st.none(), st.integers(1, 10**6)),
    cache=st.sampled_from(["block_hash", "none"]),
    queue=st.sampled_from(["fcfs", "priority"]),
    kv_precision=st.sampled_from([None, "fp8"]),
)
def test_parse_reads_back_what_render_prints(
    model: str | None,
    tp: int | None,
    precision: str | None,
    seqs: int,
    tokens: int,
    utilization: float,
    blocks: int | None,
    length: int | None,
    cache: str,
    queue: str,
    kv_precision: str | None,
) -> None:
    engine = {
        "max_num_seqs": seqs,
        "max_num_batched_tokens": tokens,
        "gpu_memory_utilization": utilization,
        "prefix_cache": cache,
        "queue": queue,
        "num_gpu_blocks": blocks,
        "max_model_len": length,
    }
    serve = VllmServe(engine, model, tp, precision, (), kv_precision)
    back = parse(render(serve))
    assert (back.config(), back.model, back.tp, back.precision) == (serve.config(), model, tp, precision)
    assert back.kv_precision == kv_precision
