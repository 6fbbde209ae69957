"""R1 to R4 and R19: what needs no sweep. The engine alone, the records alone, one changed value, one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from calibration import catalog
from calibration.memory import kv_blocks
from experiments.cards.dynbranch.case import best_case
from experiments.cards.results import Results
from experiments.cards.rows import Check, Row, judged, near
from experiments.targets import target
from policies.registry import PolicySet, load
from sim.config import EngineConfig, LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import simulate
from sim.slowdown import Shape, latency_ns
from sim.worlds import flat_profile
from traces import workloads
from traces.branches import Branches
from traces.builder import WorkloadBuilder
from traces.coverage import coverage
from traces.measured import recurrence
from traces.schema import StageKind, Workload

Studies = Mapping[str, Results]
PROFILE = "H200x1--Qwen3-32B--bf16--vllm"
# A fixed-shape request: the paper gives no shape. 1,000 tokens of prompt and 250 of output; a word is 4/3 tokens.
SHAPE = Shape(1000, 250)
NO_CONTEXT, WORDS = 16, 4500


def _r1(_: Studies) -> Row:
    wanted = target("R1").values
    profile, engine = catalog.open(PROFILE), EngineConfig()
    blocks = kv_blocks(profile, engine).blocks
    tokens = WORDS * 4 // 3

    def rise(fills: int, context: int) -> float:
        alone = latency_ns(profile, engine, blocks, SHAPE, 0, context)
        return 100 * (latency_ns(profile, engine, blocks, SHAPE, fills, context) / alone - 1)

    few, many = [rise(n, SHAPE.prompt_tokens) for n in (1, 2, 3)], rise(48, SHAPE.prompt_tokens)
    short, long = rise(24, NO_CONTEXT), rise(24, tokens)
    low, high = wanted["one_to_three_pct"]
    wanted_long = 100 * (wanted["twenty_four_long_ratio"] - 1)
    checks = [
        Check(
            f"fills slow it down: {few[0]:.1f} % beside one, {many:.0f} % beside 48",
            0 < few[0] < few[2] < many,
        ),
        Check(f"context more than number: 24 fills {short:.0f} % to {long:.0f} %", long > 3 * short),
        Check(
            f"1 to 3 fills {few[0]:.1f} to {few[2]:.1f} %",
            0.75 * low <= few[0] and few[2] <= 1.25 * high,
            "value",
        ),
        near("48 fills, %", many, wanted["forty_eight_pct"], 0.25),
        near("24 short fills, %", short, wanted["twenty_four_short_pct"], 0.25),
        near("24 long fills, %", long, wanted_long, 0.25),
    ]
    ours = f"1 to 3 fills +{few[0]:.1f} to +{few[2]:.1f} %, 48 +{many:.0f} %; 24 fills +{short:.0f} % to +{long:.0f} %"
    reading = (
        f"blind: kernel data alone, prefill included; {SHAPE.prompt_tokens} + {SHAPE.output_tokens} tokens"
    )
    return judged("R1", ours, reading, checks)


def _r2(_: Studies) -> Row:
    wanted = target("R2").values
    keys = recurrence()["musique"]["keys"]
    entity, title = keys["entity looked up"]["seen_before"], keys["supporting title"]["seen_before"]
    own = workloads.provenance("dynbranch_subagent")["recurrence"]["supporting title"]
    sizes = sorted(title, key=int)
    first, last = (title[n][0] for n in (sizes[0], sizes[-1]))
    checks = [
        Check(f"recurrence grows with the number of questions: {first:.3f} to {last:.3f}", last > first),
        near("entities looked up, 100 questions, %", 100 * entity["100"][0], wanted["react_pct"], 0.25),
        near("sub-topics of the workload's 181 questions, %", 100 * own["181"], wanted["subagent_pct"], 0.25),
        near("titles, 100 questions, %", 100 * title["100"][0], wanted["musique_at_100_pct"], 0.25),
    ]
    ours = "; ".join(
        f"{name}: " + ", ".join(f"{100 * share[n][0]:.1f} % @{n}" for n in sizes)
        for name, share in (("entity looked up", entity), ("supporting title", title))
    )
    reading = (
        "keys: entity looked up (ReAct), supporting title (Sub-Agent, MuSiQue); mean of 20 random orders"
    )
    note = f"the set has {sizes[-1]} questions, the paper's 5,000 are not in it; how many make a run is not published"
    return judged("R2", ours, reading, checks, note)


def _r3(studies: Studies) -> Row:
    del studies
    wanted = target("R3").values
    routing = _coverage("dynbranch_routing")
    retrieval = routing["drafters"]["retrieval"]
    menu = 100 * retrieval["choice"]["8"]
    deployed, exact = (100 * retrieval[what]["1"] for what in ("choice", "choice and arguments"))
    react = workloads.provenance("dynbranch_react")["records"]
    ranked, next_entities = (
        react["of_those_among_the_best"],
        react["next_entities_ranked_in_the_paragraph_before"],
    )
    three = 100 * ranked["3"]
    picks = 100 * _coverage("dynbranch_hci")["most_frequent_outcome"]["1"]
    low, high = wanted["bfcl_deployed_pct"]
    checks = [
        Check(f"an oracle covers more: {menu:.0f} to {deployed:.0f} %", menu > deployed),
        Check(f"an open vocabulary is covered less: {three:.0f} %", three < menu),
        Check(f"deployed top-1 {deployed:.0f} % for {low} to {high}", low <= deployed <= high, "value"),
        near("ReAct top-3, %", three, wanted["react_top3_pct"], 0.25),
        near("HCI top-1, %", picks, wanted["hci_top1_pct"], 0.25),
    ]
    ours = (
        f"BFCL: function among the options {menu:.0f} %, tf-idf top-1 {deployed:.0f} % ({exact:.0f} % with its "
        f"arguments); ReAct top-3 {three:.0f} % of {next_entities} next entities; HCI {picks:.0f} %"
    )
    reading = (
        "branches with something to start; ReAct where a paragraph was read; HCI the most frequent act, in sample:"
        " SGD's users also ask and wish for something else"
    )
    return judged("R3", ours, reading, checks)


def _coverage(name: str) -> dict[str, Any]:
    b = workloads.open(name).branches
    assert isinstance(b, Branches)
    return coverage(b)


def six_nodes(changed: int) -> Workload:
    """Return two workflows of six stages; the second has another content at stage `changed`.

    A chain of four, and two that hang on its first stage alone and make a subgraph.
    """
    builder = WorkloadBuilder("six")
    branches = builder.with_branches()
    for w in range(2):
        builder.workflow(f"w{w}", arrival_ns=w * 10**12)
        base = 6 * w
        for node, parent in enumerate((None, 0, 1, 2, 0, 4)):
            stage = builder.delay(StageKind.TOOL, 10**7, parents=[] if parent is None else [base + parent])
            content = node + 100 * (w == 1 and node == changed)
            branches.stage(stage, fingerprint=node + 1, content=content, speculable=True)
        branches.subgraph(base, base + 5, fingerprint=91)
        branches.subgraph(base + 4, base + 5, fingerprint=92)
    return builder.build()


def served(boundary: str) -> int:
    """Return how many of the second workflow's six stages are served when its third one changed."""
    policies = PolicySet(reuse=load("reuse", boundary))  # type: ignore[arg-type]
    config = replace(SimConfig(), load=LoadConfig(loop="open"))
    with MemorySink() as sink:
        simulate(six_nodes(2), flat_profile(10**9), policies, config, sink, kv_blocks=1000)
    actions: list[str] = sink.tables()["decisions"]["action"].to_pylist()
    return actions.count("served")


def _r4(_: Studies) -> Row:
    wanted = target("R4").values
    boundary = {"whole": "whole_response", "prefix": "prefix_region", "subgraph": "subgraph"}
    got = {name: served(policy) for name, policy in boundary.items()}
    checks = [Check(f"order {got}", got["whole"] < got["prefix"] < got["subgraph"])]
    checks += [Check(f"{n}: {v} of six", v == wanted[n], "value") for n, v in got.items()]
    ours = ", ".join(f"{n} {v}" for n, v in got.items())
    return judged("R4", ours, "a chain of four whose third stage changed, and two stages beside it", checks)


def _r19(_: Studies) -> Row:
    found = best_case()
    checks = [
        Check(f"{found.promoted} stages leave the critical path", found.promoted >= 2),
        Check(f"the request takes {found.saved_s:.2f} of {found.serial_s:.2f} s less", found.saved_s > 0),
    ]
    ours = (
        f"{found.name}: {found.serial_s:.2f} s alone, {found.filled_s:.2f} s with fills on two replicas; "
        f"{found.promoted} stages promoted"
    )
    note = "illustrative: the paper publishes no durations of this request"
    return judged("R19", ours, "the Routing request that gains most, alone on two replicas", checks, note)


ROWS: dict[str, Callable[[Studies], Row]] = {"R1": _r1, "R2": _r2, "R3": _r3, "R4": _r4, "R19": _r19}
