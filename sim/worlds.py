"""Small random worlds for the laws of the simulator: workload, profile, configuration, policies from one number.

Tests and the fuzzer draw them. They are small so that a world takes milliseconds, and tight (pools of a few hundred
tokens, batches of a few sequences) so that what is rare in a real run happens in most of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa

from policies.api import Evictor, Router
from policies.costs import Profile
from policies.registry import PolicySet, load
from sim.config import EngineConfig, FaultConfig, HostTierConfig, LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import RunStats, simulate
from traces.builder import WorkloadBuilder
from traces.draws import bits_array, uniform
from traces.schema import StageKind, Workload
from traces.transcript import Transcript

T = TypeVar("T")


def flat_profile(step_ps: int, **changes: Any) -> Profile:
    """Return a profile whose step costs `step_ps` whatever the batch."""
    base = Profile(
        identity={
            "gpu": "toy",
            "tp": 1,
            "model": "toy",
            "precision": "bf16",
            "engine": "toy",
            "timing": "made up",
        },
        linear_tokens=(1,),
        linear_ps=(step_ps,),
        kv_read_ps_per_token=0,
        attention_as_per_pair=0,
        per_seq_ps=0,
        overhead_ps=0,
        overhead_per_seq_ps=0,
        kv_bytes_per_token=1000,
        weight_bytes=1,
        gpu_bytes=10**9,
        max_model_len=10**6,
        pcie_bytes_per_s=10**9,
        pcie_copy_overhead_ps=6_000_000,
    )
    return replace(base, **changes)


@dataclass(frozen=True)
class World:
    """One random world; `run` simulates it."""

    workload: Workload
    profile: Profile
    config: SimConfig
    policies: PolicySet
    kv_blocks: int

    def run(self, *, check: bool = False, **engine: Any) -> tuple[RunStats, dict[str, pa.Table]]:
        """Simulate with `engine` changes to the engine's configuration; return statistics and tables.

        check: verify the books of every replica at every step (AssertionError).
        """
        config = replace(self.config, engine=replace(self.config.engine, **engine))
        with MemorySink() as sink:
            stats = simulate(
                self.workload,
                self.profile,
                self.policies,
                config,
                sink,
                kv_blocks=self.kv_blocks,
                check=check,
            )
        return stats, sink.tables()


class Dice:
    """Keyed draws of a purpose, in the order they are asked for."""

    def __init__(self, seed: int, purpose: str = "world") -> None:
        self.seed = seed
        self.purpose = purpose
        self.count = 0

    def below(self, n: int) -> int:
        """Return a whole number in [0, n)."""
        self.count += 1
        return int(uniform(self.seed, self.purpose, self.count) * n)

    def pick(self, *options: T) -> T:
        """Return one of the options."""
        return options[self.below(len(options))]


def random_workload(dice: Dice, *, arrivals: bool) -> Workload:
    """Return workflows with shared prefixes, tools, waits, joins, empty outputs, simultaneous arrivals."""
    builder = WorkloadBuilder("random", hash_block_tokens=dice.pick(4, 16, 24))
    unit = builder.hash_block_tokens
    fresh = 1000
    system = [list(range(10 * a, 10 * a + dice.below(6))) for a in range(3)]
    for w in range(2 + dice.below(14)):
        builder.workflow(f"w{w}", arrival_ns=dice.below(8) * 5_000_000 if arrivals else None)
        agent = dice.below(3)
        units = list(system[agent])
        stages: list[int] = []
        for _ in range(1 + dice.below(6)):
            # A chain mostly; else a join of the last two, a sibling of the last, another root, or a late join.
            kind_of_edge = dice.below(8)
            if kind_of_edge < 4:
                parents = stages[-1:]
            elif kind_of_edge == 4:
                parents = stages[-2:]
            elif kind_of_edge == 5:
                parents = stages[-2:-1]
            elif kind_of_edge == 6:
                parents = []
            else:
                parents = sorted({dice.below(len(stages)) + stages[0] for _ in range(2)}) if stages else []
            if dice.below(3) == 0 and stages:
                kind = StageKind.TOOL if dice.below(2) else StageKind.WAIT
                stages.append(builder.delay(kind, dice.pick(0, 1, 7_000_000, 90_000_000), parents=parents))
                continue
            for _ in range(dice.below(5)):
                fresh += 1
                units.append(fresh)
            if dice.below(5) == 0 and len(units) > 2:
                units = units[: len(units) // 2]
            shared = len(units) * unit
            prompt = max(1, shared - dice.below(unit) if dice.below(2) else shared + dice.below(40))
            output = dice.pick(0, 1, 2, 5 + dice.below(60), 100)
            sequence = None
            if dice.below(2) and prompt == shared and output >= unit:
                fresh += 1
                sequence = [*units, fresh]
            stages.append(
                builder.llm(
                    prompt, output, parents=parents, agent=f"agent-{agent}",
                    prompt_units=np.array(units, dtype=np.uint64),
                    sequence_units=np.array(sequence, dtype=np.uint64) if sequence else None,
                )
            )  # fmt: skip
            if sequence:
                units = sequence
    return builder.build()


def random_world(seed: int, evictor: str | None = None, *, faults: bool = True) -> World:
    """Return the world of a seed; `faults` allows a horizon and a pausing replica."""
    dice = Dice(seed)
    open_loop = bool(dice.below(2))
    workload = random_workload(dice, arrivals=open_loop)
    profile = flat_profile(
        1_000_000_000 + dice.below(10**6),
        kv_read_ps_per_token=dice.below(60_000),
        attention_as_per_pair=dice.below(10**6),
        per_seq_ps=dice.below(10**6),
        overhead_ps=dice.below(10**6),
        pcie_bytes_per_s=dice.pick(10**6, 10**8),
    )
    profile = replace(profile, linear_tokens=(1, 64), linear_ps=(10**9, 10**9 + 37_000_003))
    seqs = 1 + dice.below(12)
    engine = EngineConfig(
        block_tokens=dice.pick(1, 4, 16),
        max_num_seqs=seqs,
        max_num_batched_tokens=seqs + dice.below(200),
        max_model_len=dice.pick(500, 10_000),
        prefix_cache=dice.pick("radix", "block_hash", "block_hash", "none"),
        queue=dice.pick("fcfs", "priority"),
        watermark_blocks_ratio=dice.pick(0.0, 0.05),
    )
    tier = HostTierConfig(
        ratio=dice.pick(0.0, 0.0, 0.5, 2.0),
        write=dice.pick("write_through", "write_through_selective", "write_back"),
        load_back=dice.pick("predicted", "always"),
        min_load_tokens=1,
    )
    load_config = LoadConfig(
        loop="open" if open_loop else "closed",
        concurrency=1 + dice.below(8),
        horizon_s=dice.pick(0.05, 0.4) if faults and dice.below(4) == 0 else None,
    )
    fault = FaultConfig(pause_at_s=0.05, pause_for_s=0.3) if faults and dice.below(4) == 0 else FaultConfig()
    config = SimConfig(engine, tier, load_config, fault=fault, replicas=dice.pick(1, 1, 2, 3), seed=seed)
    policies = PolicySet(
        evictor=cast("Evictor[Any]", load("evictors", evictor or "lru")),
        router=cast("Router[Any]", load("routers", dice.pick("round_robin", "least_loaded", "prefix_aware"))),
    )
    pool_tokens = 150 + dice.below(1200)
    return World(workload, profile, config, policies, max(2, pool_tokens // engine.block_tokens))


def with_token_ids(workload: Workload, seed: int = 0) -> Workload:
    """Return the workload with output ids of a small vocabulary, blocks, and prompts as ids, drawn from `seed`."""
    count, n = int(workload.output_tokens.sum()), workload.n_stages
    ids = (bits_array(seed, "toy ids", np.arange(count)) % np.uint64(5) + np.uint64(1)).astype(np.uint32)
    ends = np.concatenate([[0], np.cumsum(workload.prompt_tokens)]).astype(np.int64)
    transcript = Transcript(
        ("", "odd"),
        (ids % 2).astype(np.int8),
        np.full(n, -1, dtype=np.int32),
        np.zeros(n, dtype=np.int32),
        ends,
        bits_array(seed, "toy prompts", np.arange(ends[-1])).astype(np.uint32),
    )
    output_ptr = np.concatenate([[0], np.cumsum(workload.output_tokens)]).astype(np.int64)
    return replace(workload, output_ptr=output_ptr, output_ids=ids, transcript=transcript)
