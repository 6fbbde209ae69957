"""Do the simulator and vLLM decide alike? One script of serial requests, one policy object, both hosts' logs compared.

The simulator runs in this process; the live run is a directory that `python -m live replay` wrote. What is compared
is exact: the contents that left the cache, in order, and the hits of every request. Times are not.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from live.script import Content, Script, contents_of
from policies.api import Evictor, Predictor
from policies.registry import PolicySet, load
from policies.views import Access, CacheNode, Forecast, HostInfo
from sim.config import EngineConfig, LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import simulate
from sim.worlds import flat_profile
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.runlog import read_run
from traces.schema import StageKind, Workload
from traces.tables import CACHE_EVENTS

_STEP_NS = 1_000


@dataclass(frozen=True)
class Decisions:
    """What a host did with a script: blocks that left, in order, and prompt tokens found cached, by request."""

    victims: tuple[Content, ...]
    hit_tokens: tuple[int, ...]


@dataclass(frozen=True)
class Parity:
    """Outcome of one comparison. `first_difference`: place of the first other victim, -1 when there is none."""

    evictor: str
    victims: int
    hit_tokens: int
    first_difference: int
    hits_equal: bool
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether both hosts decided alike throughout."""
        return self.first_difference < 0 and self.hits_equal and not self.notes


def compare(script: Script, live: Path) -> Parity:
    """Simulate `script` under the policies that the live run in `live` names, and compare.

    The engine's own order ("stock") is compared with lru. Raises InputError for a directory that holds no live run, or
    one of another script.
    """
    about = _about(live)
    stock = about["evictor"] == "stock"
    evictor = cast(
        "Evictor[Any]",
        load(
            "evictors", "lru" if stock else about["evictor"], {} if stock else _set(about["evictor_options"])
        ),
    )
    predictor = cast(
        "Predictor[Any]", load("predictors", about["predictor"], _set(about["predictor_options"]))
    )
    there = live_decisions(script, live)
    here = simulated_decisions(script, about["kv_blocks"], evictor, predictor)
    notes = []
    for key, what in (
        ("dropped", "the policy was dropped"),
        ("predictor_dropped", "the predictor was dropped"),
        ("host_failed", "the host failed"),
    ):
        if about[key]:
            notes.append(f"{what}: {about[key]}")
    if about["duplicates"]:
        notes.append(f"{about['duplicates']} blocks computed twice: parity is exact without them only")
    return Parity(
        about["evictor"],
        len(here.victims),
        sum(here.hit_tokens),
        _first_difference(here.victims, there.victims),
        here.hit_tokens == there.hit_tokens,
        tuple(notes),
    )


def add_parser(commands: Any) -> None:
    """Add `parity` to the command line."""
    parser = commands.add_parser("parity", help="compare decisions of vLLM with the simulator's")
    parser.add_argument("script", type=Path, help="what `python -m live record` wrote")
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="what `python -m live replay` wrote"
    )
    parser.set_defaults(run=_parity)


def _parity(args: argparse.Namespace) -> int:
    script = Script.open(args.script)
    outcomes = [(run, compare(script, run)) for run in args.runs]
    for run, o in outcomes:
        said = "equal" if o.equal else "; ".join(_differences(o))
        print(f"{run}: {o.evictor}: {o.victims} victims, {o.hit_tokens} hit tokens in the simulator: {said}")
    return 0 if all(o.equal for _, o in outcomes) else 1


def _differences(o: Parity) -> list[str]:
    out = [f"victim {o.first_difference} is another"] if o.first_difference >= 0 else []
    return out + ([] if o.hits_equal else ["other hits"]) + list(o.notes)


def _set(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


# -- the simulator ------------------------------------------------------------------------------------------------


def as_workload(script: Script) -> tuple[Workload, list[int]]:
    """Return the script as a workload whose requests start a fixed time apart, and the stage of each request."""
    longest = max(len(r.output) for r in script.requests)
    period_ns = (longest + 5) * _STEP_NS
    builder = WorkloadBuilder("script", hash_block_tokens=1)
    stages = [-1] * len(script.requests)
    for workflow in range(script.workflows):
        mine = [r for r in script.requests if r.workflow == workflow]
        builder.workflow(f"w{workflow}", arrival_ns=mine[0].stage * period_ns)
        ended_ns, parents = mine[0].stage * period_ns, list[int]()
        for r in mine:
            start_ns = r.stage * period_ns
            if start_ns > ended_ns:
                parents = [builder.delay(StageKind.WAIT, start_ns - ended_ns, parents=parents)]
            ids = np.array([*r.prompt, *r.output], dtype=np.uint64)
            stages[r.stage] = builder.llm(
                len(r.prompt),
                len(r.output),
                parents=parents,
                agent=r.agent,
                prompt_units=ids[: len(r.prompt)],
                sequence_units=ids,
            )
            parents = [stages[r.stage]]
            ended_ns = start_ns + len(r.output) * _STEP_NS
    return builder.build(), stages


def simulated_decisions(
    script: Script, kv_blocks: int, evictor: Evictor[Any], predictor: Predictor[Any] | None = None
) -> Decisions:
    """Return what the simulator decides, with the block-hash semantics."""
    workload, stages = as_workload(script)
    request_of = {stage: i for i, stage in enumerate(stages)}
    contents = [contents_of([*r.prompt, *r.output], script.block_tokens) for r in script.requests]
    witness = Witness(evictor, script.block_tokens, {s: contents[i] for s, i in request_of.items()})
    policies = PolicySet(evictor=witness)
    if predictor is not None:
        policies = replace(policies, predictor=predictor)
    tokens = max(len(r.prompt) + len(r.output) for r in script.requests)
    engine = EngineConfig(
        block_tokens=script.block_tokens, max_num_seqs=1, max_num_batched_tokens=max(tokens, 2048)
    )
    with MemorySink() as sink:
        simulate(
            workload,
            flat_profile(_STEP_NS * 1_000),
            policies,
            SimConfig(engine, load=LoadConfig(loop="open")),
            sink,
            kv_blocks=kv_blocks,
        )
    requests = sink.tables()["requests"]
    hits = [0] * len(stages)
    columns = (requests[c].to_pylist() for c in ("stage", "gpu_hit_tokens", "preemptions"))
    for stage, hit, preemptions in zip(*columns, strict=True):
        if preemptions:
            raise InputError(
                f"request {request_of[stage]} was preempted: the pool is too small for a comparison"
            )
        hits[request_of[stage]] = hit
    return Decisions(tuple(witness.victims), tuple(hits))


@dataclass(frozen=True)
class Witness(Evictor[Any]):
    """An evictor that passes everything on to another, and notes which blocks leave, in order."""

    inner: Evictor[Any]
    block_tokens: int
    contents: dict[int, list[Content]]  # of each stage's sequence, block by block
    victims: list[Content] = field(default_factory=list)
    held: dict[int, list[Content]] = field(default_factory=dict)  # by node

    def new_state(self, host: HostInfo) -> Any:
        """Return the other's state."""
        return self.inner.new_state(host)

    def insert(self, state: Any, node: CacheNode, access: Access) -> None:
        """Note what the node holds."""
        first = (node.depth_tokens - node.tokens) // self.block_tokens
        self.held[node.id] = self.contents[access.stage][first : node.depth_tokens // self.block_tokens]
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


# -- the live run -------------------------------------------------------------------------------------------------


def live_decisions(script: Script, live: Path) -> Decisions:
    """Read what a live run decided from its tables: who was inserted below which hit, and left when."""
    run = read_run(live)
    hits = [-1] * len(script.requests)
    for stage, hit in zip(
        run.column("requests", "stage").tolist(),
        run.column("requests", "gpu_hit_tokens").tolist(),
        strict=True,
    ):
        if not 0 <= stage < len(hits):
            raise InputError(f"{live}: stage {stage} is not in the script")
        hits[stage] = hit
    if -1 in hits:
        raise InputError(f"{live}: request {hits.index(-1)} of the script is missing; another script?")
    contents = [contents_of([*r.prompt, *r.output], script.block_tokens) for r in script.requests]
    filled = [hit // script.block_tokens for hit in hits]  # blocks of each request that are known by now
    of_node: dict[int, Content] = {}
    victims = []
    insert, evict = CACHE_EVENTS.index("insert"), CACHE_EVENTS.index("evict")
    rows = zip(*(run.column("blocks", c).tolist() for c in ("event", "node", "blocks", "stage")), strict=True)
    for event, node, blocks, stage in rows:
        if event == insert:
            start = filled[stage]
            filled[stage] += blocks
            for i in range(blocks):
                of_node[node - blocks + 1 + i] = contents[stage][start + i]
        elif event == evict:
            victims.append(of_node.pop(node))
    return Decisions(tuple(victims), tuple(hits))


def _about(live: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads((live / "live.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise InputError(f"{live}: no live run: {e}") from e
    return value


def _first_difference(here: Sequence[Content], there: Sequence[Content]) -> int:
    for i, (a, b) in enumerate(zip(here, there, strict=False)):
        if a != b:
            return i
    return -1 if len(here) == len(there) else min(len(here), len(there))
