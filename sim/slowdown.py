"""What fills cost canonical requests: probed on the engine itself before a run, from its step costs alone.

A canonical request of fixed shape runs beside 0, 1, 2, ... fills that arrive with it, each with a given context,
prefill included. Nothing is taken from a measurement of any paper.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from policies.costs import Profile
from policies.registry import PolicySet
from policies.views import Slowdown
from sim.config import EngineConfig, LoadConfig, SimConfig
from traces.flat import flat_workload
from traces.schema import StageKind, Workload

FILLS = (0, 1, 2, 4, 8, 16, 32)
CONTEXT_TOKENS = (256, 1024, 4096, 16384)


class Shape(NamedTuple):
    """A request, in tokens."""

    prompt_tokens: int
    output_tokens: int


def canonical_shape(workload: Workload) -> Shape:
    """Return the median request of the workload's canonical flow (nearest rank); at least one token of each."""
    calls = (workload.stage_kind == StageKind.LLM) & workload.canonical()
    if not calls.any():
        return Shape(1, 1)

    def median(values: np.ndarray) -> int:
        return max(int(np.percentile(values[calls], 50, method="inverted_cdf")), 1)

    return Shape(median(workload.prompt_tokens), median(workload.output_tokens))


def probe(profile: Profile, engine: EngineConfig, kv_blocks: int, shape: Shape) -> Slowdown:
    """Return the surface over `FILLS` and `CONTEXT_TOKENS`, as far as the engine can hold them at once."""
    longest = engine.max_model_len or profile.max_model_len
    tokens = kv_blocks * engine.block_tokens
    contexts = tuple(c for c in CONTEXT_TOKENS if c + shape.output_tokens <= min(longest, tokens // 2))
    contexts = contexts or (max(min(longest, tokens // 2) - shape.output_tokens, 1),)
    fills = tuple(n for n in FILLS if n < engine.max_num_seqs)
    alone = latency_ns(profile, engine, kv_blocks, shape, 0, 1)
    rows = tuple(
        tuple(
            max(latency_ns(profile, engine, kv_blocks, shape, n, context) / alone, 1.0) if n else 1.0
            for context in contexts
        )
        for n in fills
    )
    return Slowdown(fills, contexts, rows)


_Key = tuple[str, EngineConfig, int, Shape, int, int]
_known: dict[_Key, int] = {}  # a sweep asks for the same surface in every run


def latency_ns(
    profile: Profile, engine: EngineConfig, kv_blocks: int, shape: Shape, fills: int, context_tokens: int
) -> int:
    """Return the latency of one request of `shape` beside `fills` requests that arrive with it.

    A fill has `context_tokens` of prompt and writes as much as the canonical request does.
    """
    key = (repr(replace(profile, provenance={})), engine, kv_blocks, shape, fills, context_tokens)
    if key not in _known:
        _known[key] = _measure(profile, engine, kv_blocks, shape, fills, context_tokens)
    return _known[key]


def _measure(
    profile: Profile, engine: EngineConfig, kv_blocks: int, shape: Shape, fills: int, context_tokens: int
) -> int:
    from sim.log import MemorySink
    from sim.run import simulate

    plain = replace(engine, queue="fcfs", fast_forward=True)
    n = fills + 1
    prompt = np.full(n, context_tokens, dtype=np.int32)
    output = np.full(n, shape.output_tokens, dtype=np.int32)
    prompt[0] = shape.prompt_tokens
    workload = flat_workload("probe", np.zeros(n, dtype=np.int64), prompt, output, {})
    with MemorySink() as sink:
        simulate(
            workload,
            profile,
            PolicySet(),
            SimConfig(plain, load=LoadConfig(loop="open")),
            sink,
            kv_blocks=kv_blocks,
        )
    requests = sink.tables()["requests"].to_pydict()
    row = requests["stage"].index(0)
    return int(requests["finished_ns"][row]) - int(requests["released_ns"][row])
