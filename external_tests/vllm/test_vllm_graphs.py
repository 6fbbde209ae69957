"""The ladder's choice of graphs against vLLM's own dispatcher, for every shape of a step up to the widest capture."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from vllm.config import CUDAGraphMode
from vllm.config.compilation import CompilationConfig
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

from live.vllm.graphs import graph_arguments
from policies.api import BatchShape, Bucketer, HostInfo
from policies.laws import toy_host
from policies.registry import load
from traces.errors import InputError


def host_of(seqs: int) -> HostInfo:
    return HostInfo(profile=toy_host().profile, block_tokens=16, capacity_tokens=1 << 20, max_num_seqs=seqs)


def dispatcher(arguments: dict[str, Any], seqs: int, query: int) -> Any:
    """vLLM's dispatcher as an engine started with these arguments has it; query: 1 + draft tokens."""
    given = arguments["compilation_config"]
    mode = CUDAGraphMode[given["cudagraph_mode"]]
    sizes = given["cudagraph_capture_sizes"]
    compilation: Any = SimpleNamespace(
        cudagraph_mode=mode, cudagraph_capture_sizes=list(sizes), max_cudagraph_capture_size=max(sizes),
        compile_sizes=None, cudagraph_specialize_lora=False, is_attention_compiled_piecewise=lambda: True,
    )  # fmt: skip
    CompilationConfig.adjust_cudagraph_sizes_for_spec_decode(compilation, query)
    config: Any = SimpleNamespace(
        compilation_config=compilation, num_speculative_tokens=query - 1, lora_config=None,
        scheduler_config=SimpleNamespace(max_num_seqs=seqs),
    )  # fmt: skip
    made = CudagraphDispatcher(config)
    made.initialize_cudagraph_keys(mode, query)
    return made


def shapes(seqs: int, query: int, top: int) -> list[BatchShape]:
    """Uniform decoding with every query length up to one more than drafted, ragged decoding, and prefills."""
    out = []
    for n in range(1, seqs + 1):
        out += [BatchShape(n, q, n * q, 0, 100 * n) for q in range(1, query + 2) if n * q <= top + 4]
    for tokens in range(1, top + 5):
        out.append(BatchShape(0, 0, tokens, 1, 0))
        if tokens >= 2:
            out.append(BatchShape(min(seqs, tokens - 1), 0, tokens, 0, 100))
            out.append(BatchShape(1, 0, tokens, 1, 100))
    return out


@pytest.mark.parametrize("seqs", [10, 64, 256])
@pytest.mark.parametrize("query", [1, 4, 6])
@pytest.mark.parametrize("mode", ["full_and_piecewise", "full_decode_only", "piecewise"])
def test_the_ladder_picks_what_vllm_dispatches(mode: str, query: int, seqs: int) -> None:
    host = host_of(seqs)
    ladder = cast("Bucketer[Any]", load("bucketers", "vllm_ladder", {"mode": mode, "uniform_tokens": query}))
    arguments = graph_arguments(ladder, host)
    vllm = dispatcher(arguments, seqs, query)
    captured = ladder.plan(host)
    assert list(captured) == vllm.compilation_config.cudagraph_capture_sizes, "vLLM keeps the plan as it is"
    state = ladder.new_state(host)
    kinds = set()
    for shape in shapes(seqs, query, captured[-1]):
        runtime, batch = vllm.dispatch(
            shape.tokens, uniform_decode=shape.prefill_seqs == 0 and shape.query_tokens == query
        )
        choice = ladder.pick(state, captured, shape)
        kind = "NONE" if choice.key is None else "PIECEWISE" if choice.piecewise else "FULL"
        assert (kind, choice.executed) == (runtime.name, batch.num_tokens), shape
        kinds.add(kind)
    assert len(kinds) == (3 if mode == "full_and_piecewise" else 2)


def test_no_graphs_is_eager() -> None:
    for name, options in (("eager", {}), ("vllm_ladder", {"mode": "none"})):
        bucketer = cast("Bucketer[Any]", load("bucketers", name, options))
        assert graph_arguments(bucketer, host_of(8)) == {"enforce_eager": True}


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("plan_buffer", {}, "a rule that vLLM does not have"),
        ("on_demand", {}, "a rule that vLLM does not have"),
        ("vllm_ladder", {"lazy": True}, "lazy=True"),
        ("vllm_ladder", {"eager_above": 2}, "eager_above=2"),
    ],
)
def test_what_vllm_cannot_do_is_refused(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        graph_arguments(cast("Bucketer[Any]", load("bucketers", name, options)), host_of(8))
