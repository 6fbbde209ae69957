"""Run directories made from keyed draws, for tests of what reads them. Not a simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.plan import Arm, Plan
from experiments.store import Store
from traces.draws import uniform_array
from traces.runlog import KV_BLOCKS_KEY
from traces.tables import REQUEST_STATUS, SCHEMAS

KV_BLOCKS = 4000


@dataclass(frozen=True)
class Effect:
    """What an arm does: prompt tokens hit (share), a factor on every time, and workflows it does not finish.

    failed: workflows whose third request is rejected, which ends them.
    """

    hit_rate: float = 0.5
    slower: float = 1.0
    failed: tuple[int, ...] = ()


def tables(
    seed: int, effect: Effect, requests: int = 240, steps: int = 600, chain: int = 6
) -> dict[str, pa.Table]:
    """Return the tables of one run: `requests` requests in workflows of `chain`; all finish but `effect.failed`."""
    i = np.arange(requests)
    luck, noise = uniform_array(seed, "length", i), uniform_array(seed, "noise", i)
    prompt = (500 + 4000 * luck).astype(np.int64)
    output = (20 + 200 * uniform_array(seed, "output", i)).astype(np.int64)
    warm = np.minimum(1.0, 4 * (i + 1) / requests)
    hit = (prompt * np.clip(effect.hit_rate * warm + 0.2 * (noise - 0.5), 0, 1)).astype(np.int64) // 16 * 16
    ms = 1_000_000
    released = i // chain * 150 * ms
    ttft = ((20 + (prompt - hit) * 0.06 + 200 * luck**8) * effect.slower * ms).astype(np.int64)
    gap = (output * 18 * (0.8 + 0.4 * noise) * effect.slower * ms).astype(np.int64)
    offset = np.zeros(requests, dtype=np.int64)
    for k in range(1, chain):
        at = i[i % chain == k]
        offset[at] = offset[at - 1] + ttft[at - 1] + gap[at - 1]
    released = released + offset
    first, finished = released + ttft, released + ttft + gap
    workflows = requests // chain
    end = int(finished.max())
    j = np.arange(steps)
    start = j * (end // steps)
    duration = np.full(steps, end // steps * 9 // 10)
    batch = (10 + 20 * np.minimum(j / (steps / 4), 1) + 4 * uniform_array(seed, "batch", j)).astype(np.int64)
    full = np.minimum(1.0, 3 * j / steps)
    fails = np.isin(i // chain, effect.failed)
    refused = fails & (i % chain == 2)
    issued = ~fails | (i % chain <= 2)
    lost = np.isin(np.arange(workflows), effect.failed)
    data: dict[str, dict[str, Any]] = {
        "requests": {
            "stage": i, "workflow": i // chain, "agent": i % 3, "prompt_tokens": prompt,
            "output_tokens": output,
            "released_ns": released, "admitted_ns": released + ttft // 4, "first_token_ns": first,
            "finished_ns": finished, "gpu_hit_tokens": hit, "prefilled_tokens": prompt - hit,
            "status": np.where(refused, REQUEST_STATUS.index("rejected"), REQUEST_STATUS.index("finished")),
        },
        "steps": {
            "start_ns": start, "duration_ns": duration, "decode_seqs": batch, "continuing_seqs": batch - 2,
            "fill_seqs": 0 * batch,
            "prefill_seqs": np.full(steps, 1), "context_tokens": batch * 900, "waiting": batch // 8,
            "kv_blocks_active": (0.4 * KV_BLOCKS * full).astype(np.int64),
            "kv_blocks_cached": (0.55 * KV_BLOCKS * full).astype(np.int64),
        },
        "workflows": {
            "workflow": np.arange(workflows), "arrival_ns": released[::chain],
            "started_ns": released[::chain],
            "finished_ns": np.where(lost, -1, finished[chain - 1 :: chain]),
            "stages": np.where(lost, 2, chain), "requests": np.full(workflows, chain), "rejected": lost,
            "waited_ns": np.zeros(workflows),
        },
    }  # fmt: skip
    data["requests"] = {k: v[issued] for k, v in data["requests"].items()}
    return {name: _table(name, data.get(name, {})) for name in SCHEMAS}


def write_run(directory: Path, made: dict[str, pa.Table], state_pool: bool = True) -> None:
    """Write the tables of one run, the size of the KV pool in the metadata of `steps` where asked for."""
    for name, table in made.items():
        if name == "steps" and state_pool:
            table = table.replace_schema_metadata(
                {**(table.schema.metadata or {}), KV_BLOCKS_KEY: str(KV_BLOCKS).encode()}
            )
        pq.write_table(table, directory / f"{name}.parquet")


def make(
    root: Path,
    effects: dict[str, Effect],
    *,
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4),
    axes: dict[str, list[Any]] | None = None,
    missing: tuple[tuple[str, int], ...] = (),
    size: dict[str, int] | None = None,
    state_pool: bool = True,
    manifest: dict[str, Any] | None = None,
    **changes: Any,
) -> tuple[Plan, Store]:
    """Return a plan and a store with its runs, but those in `missing`. Arm "belady_leaf" needs the oracle."""
    store = Store(root)
    store.create()
    points = [{k: v} for k, vs in (axes or {}).items() for v in vs] or [{}]
    arms, runs = [], {}
    for p, point in enumerate(points):
        for name, effect in effects.items():
            label = name + "".join(f" {k}={v}" for k, v in point.items())
            needs = ("oracle",) if name == "belady_leaf" else ()
            arms.append(Arm(label, point, (f"evictor={name}",), {"evictors": name}, name, needs))
            for seed in seeds:
                run_id = f"{abs(hash_of(label)):08x}{seed:02d}"
                runs[label, seed] = run_id
                if (label, seed) in missing:
                    continue
                with store.begin(run_id) as draft:
                    slower = replace(effect, slower=effect.slower * (1 + 0.4 * p))
                    write_run(draft.directory, tables(seed, slower, **(size or {})), state_pool)
                    stats = {"fast_forward_ratio": 0.9 + seed / 100}
                    draft.commit({"seed": seed, "stats": stats} | (manifest or {}))
    values: dict[str, Any] = {
        "name": "main",
        "command": "python -m experiments run evictor=lru,lifecycle",
        "arms": tuple(arms),
        "seeds": seeds,
        "runs": runs,
        "workload": {
            "name": "weka", "digest": "0123456789abcdef", "requests": 240, "workflows": 40,
            "hash_block_tokens": 64,
            "provenance": {"source": "coding-agent sessions", "licence": "Apache-2.0"},
        },
        "profile": {
            "name": "h200x1--qwen3-32b--bf16--vllm",
            "identity": {"gpu": "h200", "tp": 1, "model": "qwen3-32b", "precision": "bf16", "engine": "vllm",
                         "timing": "kernel tables"},
            "error": {"mape_percent": 8.1, "p95_percent": 20.5, "how": "held-out steps"},
            "digest": "fedcba9876543210",
        },
        "kv": {"blocks": KV_BLOCKS, "source": "stated arithmetic of gpu_memory_utilization"},
        "config": {"engine": {"block_tokens": 16, "max_num_seqs": 64}, "load": {"concurrency": 32}},
        "changed": {"engine.max_num_seqs": 64},
        "slo": {"ttft_ms": 2000.0, "tpot_ms": 50.0},
    }  # fmt: skip
    plan = Plan(**(values | changes))
    store.save_plan(plan)
    return plan, store


def hash_of(text: str) -> int:
    """Return a number that only depends on the text."""
    return int.from_bytes(text.encode()[:64].ljust(64, b" "), "big") % 0xFFFFFFFB


def _table(name: str, columns: dict[str, Any]) -> pa.Table:
    schema = SCHEMAS[name]
    rows = len(next(iter(columns.values()))) if columns else 0
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None and pa.types.is_dictionary(field.type):
            arrays.append(pa.array([""] * rows).dictionary_encode().cast(field.type))
        else:
            arrays.append(pa.array(np.zeros(rows, np.int64) if values is None else values).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)
