"""What the simulator decides on a script, under the policies and the host tier of a live run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import numpy as np

from calibration.decisions import STEP_COLUMNS, Decisions, Load
from live.script import Content, Script, contents_of
from policies.api import Evictor, Predictor, Prefetcher
from policies.registry import PolicySet
from policies.registry import load as load_policy
from policies.views import Access, CacheNode, Forecast, HostInfo
from sim.config import EngineConfig, HostTierConfig, LoadConfig, SimConfig
from sim.kv.paths import PrefixPaths
from sim.kv.radix import Node
from sim.log import MemorySink
from sim.run import simulate
from sim.worlds import flat_profile
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.schema import StageKind, Workload
from traces.tables import CACHE_EVENTS

_STEP_NS = 1_000


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that have a value."""
    return {name: value for name, value in options.items() if value is not None}


def as_workload(script: Script, sent: Sequence[int]) -> tuple[Workload, list[int]]:
    """Return the script as a workload whose requests are released at ticks of one step each, and each one's stage."""
    builder = WorkloadBuilder("script", hash_block_tokens=1)
    stages = [-1] * len(script.requests)
    for workflow in range(script.workflows):
        # All arrive at once and wait: then what is released at one instant is released in the order of workflows.
        builder.workflow(f"w{workflow}", arrival_ns=0)
        for r in (r for r in script.requests if r.workflow == workflow):
            wait_ns = sent[r.stage] * _STEP_NS
            parents = [builder.delay(StageKind.WAIT, wait_ns)] if wait_ns else []
            ids = np.array([*r.prompt, *r.output], dtype=np.uint64)
            stages[r.stage] = builder.llm(
                len(r.prompt), len(r.output), parents=parents, agent=r.agent,
                prompt_units=ids[: len(r.prompt)], sequence_units=ids,
                output_ids=np.array(r.output, dtype=np.uint32), prompt_ids=np.array(r.prompt, dtype=np.uint32),
            )  # fmt: skip
    return builder.build(), stages


def simulated_decisions(
    script: Script,
    kv_blocks: int,
    evictor: Evictor[Any],
    predictor: Predictor[Any] | None = None,
    host_tier: dict[str, Any] | None = None,
    load: Load | None = None,
    drafting: dict[str, Any] | None = None,
) -> Decisions:
    """Return what the simulator decides, with the block-hash semantics.

    host_tier: as a live run's `live.json` has it. The link takes no time, as the live host's synchronous copies, which
    the engine's clock does not see. load: how the requests are sent; None: one after the other.
    drafting: a live run's `drafting.json`; None: nothing is drafted.
    """
    load = load or Load()
    workload, stages = as_workload(script, load.sent or _one_by_one(script))
    request_of = {stage: i for i, stage in enumerate(stages)}
    contents = [contents_of([*r.prompt, *r.output], script.block_tokens) for r in script.requests]
    by_stage = {s: contents[i] for s, i in request_of.items()}
    witness = Witness(
        evictor, script.block_tokens, by_stage, _by_segment(workload, script.block_tokens, by_stage)
    )
    policies = PolicySet(evictor=witness)
    if drafting is not None:
        policies = replace(policies, **_drafting(drafting))
    tier = HostTierConfig()
    if host_tier is not None:
        prefetcher = load_policy(
            "prefetchers", host_tier["prefetcher"], given_options(host_tier["prefetcher_options"])
        )
        policies = replace(policies, prefetcher=cast("Prefetcher[Any]", prefetcher))
        tier = HostTierConfig(
            ratio=(host_tier["host_blocks"] + 0.5) / kv_blocks,
            write=host_tier["host_write"],
            load_back=host_tier["load_back"],
            pcie_bytes_per_s=1 << 62,
            min_load_tokens=host_tier["min_load_tokens"],
            prefetch_grain="block",
            evictor=_written(host_tier["host_evictor"], given_options(host_tier["host_evictor_options"])),
        )
    if predictor is not None:
        policies = replace(policies, predictor=predictor)
    tokens = max(len(r.prompt) + len(r.output) for r in script.requests)
    batched = load.max_num_batched_tokens if load.sent else max(tokens, load.max_num_batched_tokens)
    engine = EngineConfig(
        block_tokens=script.block_tokens, max_num_seqs=load.max_num_seqs, max_num_batched_tokens=batched
    )
    with MemorySink() as sink:
        simulate(
            workload,
            flat_profile(_STEP_NS * 1_000, pcie_copy_overhead_ps=0),
            policies,
            SimConfig(engine, host_tier=tier, load=LoadConfig(loop="open")),
            sink,
            kv_blocks=kv_blocks,
        )
    requests = sink.tables()["requests"]
    hits, host_hits = [0] * len(stages), [0] * len(stages)
    names = ("stage", "gpu_hit_tokens", "host_hit_tokens", "preemptions")
    columns = (requests[c].to_pylist() for c in names)
    for stage, hit, host_hit, preemptions in zip(*columns, strict=True):
        if preemptions and not load.sent:
            raise InputError(
                f"request {request_of[stage]} was preempted: the pool is too small for a comparison"
            )
        hits[request_of[stage]] = hit
        host_hits[request_of[stage]] = host_hit
    loaded = _loaded(sink.tables()["blocks"])
    prefetched = [c for node, contents in witness.restored if node not in loaded for c in contents]
    columns = (sink.tables()["steps"][c].to_pylist() for c in STEP_COLUMNS)
    steps = tuple(zip(*columns, strict=True))
    return Decisions(tuple(witness.victims), tuple(hits), tuple(host_hits), tuple(prefetched), steps)


def _one_by_one(script: Script) -> list[int]:
    """Return ticks so far apart that a request has ended before the next is sent."""
    longest = max(len(r.output) for r in script.requests)
    return [r.stage * (longest + 5) for r in script.requests]


def _drafting(given: dict[str, Any]) -> dict[str, Any]:
    if given["corrupt_every"]:
        raise InputError(
            "corrupted drafts are for tests of losslessness: the simulator drafts as the policy says"
        )
    drafter = load_policy("drafters", given["drafter"], given_options(given["drafter_options"]))
    budget = load_policy("budgets", given["budget"], given_options(given["budget_options"]))
    return {"drafter": _free(drafter), "budget": budget}


def _free(drafter: Any) -> Any:
    """Return the drafter with drafting that takes no time: a tick is one step, however long that was."""
    kind = type(drafter)
    free = type(kind.__name__, (kind,), {"cost_ps": lambda *_, **__: 0})
    return free(**{f.name: getattr(drafter, f.name) for f in fields(drafter)})


def _written(name: str, options: dict[str, Any]) -> str:
    """Return a policy as `name(option=value, ...)`."""
    return f"{name}({', '.join(f'{k}={v}' for k, v in options.items())})" if options else name


def _by_segment(
    workload: Workload, block_tokens: int, by_stage: dict[int, list[Content]]
) -> dict[int, list[Content]]:
    """Return the contents of a path through each segment of the workload's prefix tree."""
    paths = PrefixPaths(workload, block_tokens)
    out: dict[int, list[Content]] = {}
    for stage, contents in by_stage.items():
        segment = paths.sequence_segment[stage]
        while segment >= 0 and segment not in out:
            out[segment] = contents
            segment = paths.parent[segment]
    return out


def _loaded(blocks: Any) -> set[int]:
    """Return the nodes that came by prefetch no more than by a request: those without a row of it."""
    event = CACHE_EVENTS.index("insert")
    rows = zip(blocks["event"].to_pylist(), blocks["node"].to_pylist(), strict=True)
    return {node for kind, node in rows if kind == event}


@dataclass(frozen=True)
class Witness(Evictor[Any]):
    """An evictor that passes everything on to another, and notes which blocks leave, in order."""

    inner: Evictor[Any]
    block_tokens: int
    contents: dict[int, list[Content]]  # of each stage's sequence, block by block
    of_segment: dict[int, list[Content]]  # of a path through each segment
    victims: list[Content] = field(default_factory=list)
    held: dict[int, list[Content]] = field(default_factory=dict)  # by node
    restored: list[tuple[int, list[Content]]] = field(default_factory=list)  # (node, its blocks)

    def new_state(self, host: HostInfo) -> Any:
        """Return the other's state."""
        return self.inner.new_state(host)

    def insert(self, state: Any, node: CacheNode, access: Access) -> None:
        """Note what the node holds."""
        first = (node.depth_tokens - node.tokens) // self.block_tokens
        assert isinstance(node, Node)
        path = self.of_segment.get(node.segment) or self.contents[access.stage]
        self.held[node.id] = path[first : node.depth_tokens // self.block_tokens]
        self.inner.insert(state, node, access)

    def hit(self, state: Any, node: CacheNode, access: Access) -> None:
        """Pass on."""
        self.inner.hit(state, node, access)

    def done(self, state: Any, node: CacheNode, now_ns: int) -> None:
        """Pass on."""
        self.inner.done(state, node, now_ns)

    def release(self, state: Any, node: CacheNode, now_ns: int) -> None:
        """Pass on."""
        self.inner.release(state, node, now_ns)

    def pin(self, state: Any, node: CacheNode) -> None:
        """Pass on."""
        self.inner.pin(state, node)

    def split(self, state: Any, upper: CacheNode, lower: CacheNode) -> None:
        """Divide what the node holds."""
        blocks = upper.tokens // self.block_tokens
        self.held[upper.id], self.held[lower.id] = self.held[lower.id][:blocks], self.held[lower.id][blocks:]
        self.inner.split(state, upper, lower)

    def shrink(self, state: Any, node: CacheNode) -> None:
        """Note the tail that left."""
        self._leave(node.id, node.tokens // self.block_tokens)
        self.inner.shrink(state, node)

    def remove(self, state: Any, node: CacheNode) -> None:
        """Note the rest that left."""
        self._leave(node.id, 0)
        del self.held[node.id]
        self.inner.remove(state, node)

    def restore(self, state: Any, node: CacheNode, readers: Sequence[Access]) -> None:
        """Note what came back."""
        self.restored.append((node.id, list(self.held[node.id])))
        self.inner.restore(state, node, readers)

    def retired(self, state: Any, node: CacheNode) -> bool:
        """Pass on."""
        return self.inner.retired(state, node)

    def workflow_finished(self, state: Any, workflow: int, now_ns: int) -> None:
        """Pass on."""
        self.inner.workflow_finished(state, workflow, now_ns)

    def forecast(self, state: Any, forecast: Forecast) -> None:
        """Pass on."""
        self.inner.forecast(state, forecast)

    def next_victim(self, state: Any, now_ns: int) -> CacheNode | None:
        """Pass on."""
        return self.inner.next_victim(state, now_ns)

    def _leave(self, node: int, keep: int) -> None:
        self.victims.extend(reversed(self.held[node][keep:]))
        del self.held[node][keep:]
