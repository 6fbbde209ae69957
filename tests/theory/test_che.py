"""The LRU prefix cache under independent references: an exact LRU list, and Che's approximation."""

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from stations import PROFILE, interval

from policies.registry import PolicySet
from sim.config import EngineConfig, LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import simulate
from traces import draws
from traces.builder import WorkloadBuilder
from traces.runlog import RunLog, from_tables

ITEMS = 300
BLOCK = 16
REPLICATIONS = 8
REQUESTS = 2_500
WARM = 400


def popularity(skew: float) -> NDArray[np.float64]:
    weight = np.arange(1, ITEMS + 1) ** -skew
    return np.asarray(weight / weight.sum())


def che_hit_rate(skew: float, cache: int) -> float:
    """Return sum p (1 - exp(-p t)) with t from sum (1 - exp(-p t)) = cache (Che, Tung and Wang 2002)."""
    p = popularity(skew)
    t = brentq(lambda x: float(-np.expm1(-p * x).sum()) - cache, 1.0, 1e9)
    return float((p * -np.expm1(-p * t)).sum())


def run(skew: float, cache: int, seed: int) -> tuple[RunLog, NDArray[np.int64]]:
    """One request at a time, each for one item: a whole block with an identity, and one private token."""
    u = draws.uniform_array(seed, "item", np.arange(REQUESTS))
    item = np.minimum(np.searchsorted(np.cumsum(popularity(skew)), u), ITEMS - 1)
    builder = WorkloadBuilder("items", hash_block_tokens=BLOCK)
    for i in item.tolist():
        builder.workflow(str(len(builder._rows)))
        builder.llm(BLOCK + 1, 1, prompt_units=np.array([i + 1], dtype=np.uint64))
    config = SimConfig(
        engine=EngineConfig(block_tokens=BLOCK, max_num_seqs=1, max_num_batched_tokens=64),
        load=LoadConfig(concurrency=1),
        seed=seed,
    )
    with MemorySink() as sink:
        # One block more than the cache: the request in service needs one for its private token.
        simulate(builder.build(), PROFILE, PolicySet(), config, sink, kv_blocks=cache + 1)
    return from_tables(sink.tables()), item


def hits(log: RunLog) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the stages in order of admission, and which of them hit."""
    stage, admitted, tokens = log.columns("requests", "stage", "admitted_ns", "gpu_hit_tokens")
    order = np.argsort(admitted, kind="stable")
    assert set(np.unique(tokens)) <= {0, BLOCK}
    return stage[order], tokens[order] == BLOCK


def test_the_cache_is_an_lru_list_when_nothing_is_shared() -> None:
    for seed, cache in ((0, 10), (1, 40), (2, 150)):
        log, item = run(0.8, cache, seed)
        stages, hit = hits(log)
        lru: OrderedDict[int, None] = OrderedDict()
        for i, got in zip(item[stages].tolist(), hit.tolist(), strict=True):
            assert got == (i in lru)
            lru[i] = None
            lru.move_to_end(i)
            if len(lru) > cache:
                lru.popitem(last=False)


def test_the_lru_hit_rate_follows_che() -> None:
    for skew, cache in ((0.8, 30), (1.1, 15)):
        rates = [float(hits(run(skew, cache, s)[0])[1][WARM:].mean()) for s in range(REPLICATIONS)]
        got = interval(rates)
        theory = che_hit_rate(skew, cache)
        assert got.holds(theory), (skew, cache, str(got), theory)
        assert got.half < 0.03, str(got)
