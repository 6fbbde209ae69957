"""What a decision costs: our own policies, timed on this machine at a load and at ten times that.

    python -m experiments bench policies [part=all|cache|drafters] [predictor=SPEC] [workflows=72]
                                         [batch=256] [history_tokens=100000] [--json]

Drafters are timed by `bench_drafters`. A made-up cache stands in for an engine's: every workflow in progress has read a
chain of nodes for each of its agents, and the host tier holds as many nodes again. For speculation
(`bench_branching`) each workflow has a branch in flight, and the store holds a hundred results for each.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from experiments import bench_branching, bench_drafters
from experiments.overrides import parse as parse_value
from experiments.policyspec import parse
from policies import registry
from policies.api import Access, BatchShape, Forecast, HostInfo, Predictor, WorkflowView
from policies.evictors.lookahead import Lookahead, LookaheadState
from policies.laws import toy_host
from policies.prefetchers.conservative import Conservative
from policies.training import modelfile
from policies.training.ngrams import NgramCounts
from traces import draws
from traces.errors import InputError, nearest

DEFAULT_PREDICTOR = "markov(model=experiments/models/pbkv_hover.safetensors, online=false)"
DEPTH, TOKENS, TIMES = 4, 64, 10
PARTS = ("all", "cache", "drafters")
ROUNDS = 300
# Makes n views; forecasts them; empties what the predictor keeps between forecasts.
Forward = tuple[
    Callable[[int], list[WorkflowView]], Callable[[list[WorkflowView]], object], Callable[[], None]
]
SHAPE = BatchShape(decode_seqs=32, query_tokens=1, tokens=32, prefill_seqs=0, context_tokens=32_000)


@dataclass(eq=False)
class Node:
    """A cache node, or a run in the host tier."""

    id: int
    parent: Node | None
    depth_tokens: int
    readers: list[tuple[int, int]] = field(default_factory=list)
    tokens: int = TOKENS
    created_ns: int = 0
    last_access_ns: int = 0

    @property
    def identity(self) -> int:
        """Number of its content: no two are equal."""
        return self.id


class World:
    """A cache under `workflows` workflows in progress, with an evictor that knows it. Methods mutate."""

    def __init__(self, workflows: int, agents: tuple[str, ...]) -> None:
        self.workflows, self.agents = workflows, len(agents)
        self.host: HostInfo = replace(toy_host(), agents=agents, capacity_tokens=workflows * 1024)
        self.evictor = Lookahead()
        self.state: LookaheadState = self.evictor.new_state(self.host)
        self.nodes: list[Node] = []
        self.turn = 0
        for workflow in range(workflows):
            self.forecast(workflow)
            for agent in range(self.agents):
                parent: Node | None = None
                for depth in range(DEPTH):
                    parent = self.insert(parent, workflow, agent, depth)
                assert parent is not None
                self.evictor.release(self.state, parent, self.turn)

    def insert(self, parent: Node | None, workflow: int, agent: int, depth: int) -> Node:
        """Add a node that an agent of a workflow reads."""
        self.turn += 1
        node = Node(len(self.nodes), parent, (depth + 1) * TOKENS, [(workflow, agent)])
        self.nodes.append(node)
        self.evictor.insert(self.state, node, Access(self.turn, workflow, workflow, agent))
        return node

    def rows(self, workflow: int) -> NDArray[np.float32]:
        """Return a forecast, float32[3, agents + 1]; another one every time."""
        self.turn += 1
        ids = np.arange(3 * (self.agents + 1)).reshape(3, -1)
        p = draws.uniform_array(0, "bench/forecast", workflow, self.turn, ids) ** 2
        return cast("NDArray[np.float32]", (p / p.sum(axis=1, keepdims=True)).astype(np.float32))

    def forecast(self, workflow: int) -> None:
        """Send a new forecast of a workflow."""
        self.evictor.forecast(self.state, Forecast(workflow, self.turn, self.rows(workflow)))


def bench(words: Sequence[str], *, as_json: bool) -> int:
    """Print the cost of each decision at the load and at ten times that; return the exit status."""
    spec, part = DEFAULT_PREDICTOR, "all"
    sizes = {"workflows": 72, "batch": 256, "history_tokens": 100_000}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in ("part", "predictor", *sizes) or not equals:
            raise InputError(nearest(name, ("part", "predictor", *sizes), what="option of bench policies"))
        if name == "predictor":
            spec = value
        elif name == "part":
            if value not in PARTS:
                raise InputError(nearest(value, PARTS, what="part"))
            part = value
        else:
            sizes[name] = int(parse_value("load.concurrency", value)[0])
            least = bench_drafters.LEAST_TOKENS if name == "history_tokens" else 1
            if sizes[name] < least:
                raise InputError(f"{name}={sizes[name]}: expected at least {least}")
    workflows, measured = sizes["workflows"], dict[str, Any]()
    if part != "drafters":
        measured = measure(spec, (workflows, TIMES * workflows))
        measured["cost_us"].update(measure_branching((workflows, TIMES * workflows)))
    if part != "cache":
        measured["drafters"] = bench_drafters.measure(sizes["batch"], sizes["history_tokens"])
    if as_json:
        print(json.dumps(measured, indent=1))
        return 0
    if part != "drafters":
        _print_costs(measured, workflows, spec)
    if part != "cache":
        bench_drafters.show(measured["drafters"], sizes["batch"], sizes["history_tokens"])
    return 0


def _print_costs(measured: dict[str, Any], workflows: int, spec: str) -> None:
    first, last = (str(n) for n in (workflows, TIMES * workflows))
    head = f"{'us a call, median (p99)':<44}{first + ' workflows':>22}{last + ' workflows':>22}{'growth':>8}"
    print(head)
    for name, by_load in measured["cost_us"].items():
        a, b = by_load[first], by_load[last]
        cells = "".join(f"{c['median']:>12.2f} ({c['p99']:.1f})".rjust(22) for c in (a, b))
        print(f"{name:<44}{cells}{b['median'] / a['median']:>8.1f}")
    print(
        f"nodes in HBM's cache: {measured['nodes'][first]:,} and {measured['nodes'][last]:,}; predictor: {spec}"
    )


def measure(spec: str, loads: Sequence[int]) -> dict[str, Any]:
    """Return {"cost_us": {name: {load: {"mean", "median", "p99"}}}, "nodes": {load: nodes}}."""
    forecast, agents = _predictor(spec)
    cost: dict[str, dict[str, dict[str, float]]] = {}
    nodes = {}
    for load in loads:
        world = World(load, agents)
        nodes[str(load)] = len(world.nodes)
        _summarise(_costs(world, forecast), load, cost)
    return {"cost_us": cost, "nodes": nodes, "predictor": spec}


def measure_branching(loads: Sequence[int]) -> dict[str, dict[str, dict[str, float]]]:
    """Return {name: {load: {"mean", "median", "p99"}}} in us, a branch in flight for each workflow of the load."""
    cost: dict[str, dict[str, dict[str, float]]] = {}
    for load in loads:
        _summarise(bench_branching.costs(load, ROUNDS), load, cost)
    return cost


def _summarise(
    costs: dict[str, list[float]], load: int, into: dict[str, dict[str, dict[str, float]]]
) -> None:
    for name, values in costs.items():
        values.sort()
        at = values[min(len(values) - 1, int(0.99 * len(values)))]
        into.setdefault(name, {})[str(load)] = {
            "mean": statistics.fmean(values), "median": statistics.median(values), "p99": at,
        }  # fmt: skip


def _costs(world: World, forecast: Forward) -> dict[str, list[float]]:
    evictor, state = world.evictor, world.state
    evict, update, refresh = [], [], []
    for turn in range(ROUNDS):
        workflow = draws.bits(0, "bench/workflow", turn) % world.workflows
        rows = Forecast(workflow, world.turn, world.rows(workflow))
        nodes = max(len(state.leaves.get(workflow, ())), 1)
        began = time.perf_counter_ns()
        evictor.forecast(state, rows)
        took = (time.perf_counter_ns() - began) / 1e3
        refresh.append(took)
        update.append(took / nodes)
        began = time.perf_counter_ns()
        victim = evictor.next_victim(state, world.turn)
        assert victim is not None
        evictor.remove(state, victim)
        evict.append((time.perf_counter_ns() - began) / 1e3)
        # What left comes back under the same parent, so that the cache keeps its size.
        gone = cast("Node", victim)
        evictor.insert(state, gone, Access(world.turn, *gone.readers[0][:1], 0, gone.readers[0][1]))
        evictor.release(state, gone, world.turn)
    return {
        "evict decision (choose and remove one node)": evict,
        "score update of one node": update,
        "forecast arrives (all nodes of a workflow)": refresh,
        **_prefetch_costs(world),
        **_forecast_costs(world, forecast),
    }


def _prefetch_costs(world: World) -> dict[str, list[float]]:
    """Time a choice from the whole host tier, and a forecast that moves a workflow's candidates in it."""
    prefetcher = Conservative()
    values = prefetcher.new_state(world.host)
    for workflow in range(world.workflows):
        prefetcher.forecast(values, Forecast(workflow, 0, world.rows(workflow)))
    for node in world.nodes[: world.workflows * DEPTH * world.agents]:
        prefetcher.offer(values, node, node.id)
    choice, arrival = [], []
    for turn in range(ROUNDS):
        workflow = draws.bits(0, "bench/prefetch", turn) % world.workflows
        rows = Forecast(workflow, world.turn, world.rows(workflow))
        began = time.perf_counter_ns()
        prefetcher.forecast(values, rows)
        arrival.append((time.perf_counter_ns() - began) / 1e3)
        began = time.perf_counter_ns()
        prefetcher.choose_offered(values, 16 * TOKENS, SHAPE)
        choice.append((time.perf_counter_ns() - began) / 1e3)
    return {
        "prefetch decision (whole host tier)": choice,
        "forecast arrives at the prefetcher": arrival,
    }


def _forecast_costs(world: World, forecast: Forward) -> dict[str, list[float]]:
    """Time a batch of all workflows, and the same batch again with nothing learned since."""
    cold: list[float] = []
    again: list[float] = []
    views, forward, forget = forecast
    batch = views(world.workflows)
    for _ in range(max(ROUNDS // 20, 5)):
        forget()
        for took in (cold, again):
            began = time.perf_counter_ns()
            forward(batch)
            took.append((time.perf_counter_ns() - began) / 1e3)
    return {"predictor forward, all workflows": cold, "the same forward, nothing learned since": again}


def _predictor(spec: str) -> tuple[Forward, tuple[str, ...]]:
    """Return what forecasts, and the agents it knows (a model's, else five made-up ones)."""
    choice = parse("predictors", spec)
    policy = cast("Predictor[Any]", registry.load("predictors", choice.name, dict(choice.options)))
    model = getattr(policy, "model", None)
    agents = modelfile.load(model)[0].agents if model is not None else tuple("abcde")
    if "oracle" in policy.needs:
        raise InputError(f"predictor={spec}: an oracle reads the trace; it has no cost to measure")
    state = policy.new_state(replace(toy_host(), agents=agents))
    features = None
    if policy.reads_text:
        from policies.training.text import DIMS

        features = np.full(DIMS, 0.1, dtype=np.float32)

    def views(count: int) -> list[WorkflowView]:
        return [
            WorkflowView(w, tuple((w + k) % len(agents) for k in range(1 + w % 9)), 0, features)
            for w in range(count)
        ]

    def forget() -> None:
        if isinstance(state, NgramCounts):
            state.memo.clear()

    return (views, lambda batch: policy.forecasts(state, batch), forget), agents
