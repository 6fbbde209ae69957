"""Laws of the embedded workloads: sound, small, numbers only, and what their provenance says they are."""

import json
import re
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from traces import clocks, formats, workloads
from traces.__main__ import main as traces_main
from traces.coverage import coverage
from traces.errors import InputError
from traces.resample import GLOBAL, resample, segment_owner, subset
from traces.reuse import prefix_reuse
from traces.schema import StageKind, Workload
from traces.workloads.__main__ import embed, main

NAMES = (
    "autocoderover", "dynbranch_hci", "dynbranch_hci_menu", "dynbranch_mix", "dynbranch_react",
    "dynbranch_routing", "dynbranch_routing_handler", "dynbranch_subagent", "hover", "lmcache", "magagent",
    "miniswe", "mtbench", "pbkv_finance", "pbkv_finance_shared", "pbkv_finance_train", "pbkv_hover",
    "pbkv_hover_shared", "pbkv_hover_train", "pbkv_swe", "pbkv_swe_shared", "pbkv_swe_train", "reflexion",
    "sharegpt_like", "taubench", "weka",
)  # fmt: skip
GENERATED = ("sharegpt_like",)
IMPORTED = tuple(n for n in NAMES if n not in GENERATED)
CLAIM = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
TRAJECTORY = r"cost_2_[123]/[a-z-]+__[a-z-]+-\d+"
CALLS = r"live_multiple(_\d+|-\d+)+|multi_turn_base_\d+"
HOPS = r"[234]hop[123]?__\d+(_\d+)+"
OFFER = r"\d+_\d{5}:\d+"
QUESTION = r"financebench_id_\d{5}"
SOURCE_ID = {
    "weka": r"trace_\d{4}",
    "lmcache": r"(miniswe|magagent|taubench)/[0-9a-f]{32}(\.[a-z_]+)?",
    "magagent": r"magagent/[0-9a-f]{32}(\.[a-z_]+)?",
    "miniswe": r"miniswe/[0-9a-f]{32}",
    "mtbench": r"[a-z0-9.-]+/\d+",
    "reflexion": r"ReAct[A-Za-z_0-9]+/\d+",
    "taubench": r"gpt-4o-airline/\d+/[0-2]",
    "hover": CLAIM,
    "pbkv_hover": CLAIM,
    "pbkv_swe": TRAJECTORY,
    "pbkv_finance": QUESTION,
    "autocoderover": r"acr-run-[12]/[a-z-]+__[a-z-]+-\d+",
    "dynbranch_hci": OFFER,
    "dynbranch_hci_menu": OFFER,
    "dynbranch_react": HOPS,
    "dynbranch_subagent": HOPS,
    "dynbranch_mix": rf"(base|exact|fresh)/{HOPS}|partial/{HOPS}\+{HOPS}",
    "dynbranch_routing": CALLS,
    "dynbranch_routing_handler": CALLS,
}


@cache
def opened(name: str) -> Workload:
    return workloads.open(name)


def test_all_of_them_are_there() -> None:
    assert workloads.names() == NAMES


@pytest.mark.parametrize("name", IMPORTED)
def test_a_workload_is_sound_and_is_what_its_provenance_says(name: str) -> None:
    w, said = opened(name), workloads.provenance(name)
    assert w.errors() == []
    assert w.name == said["name"] == name
    assert w.digest() == said["digest"]
    assert (w.n_workflows, w.n_stages, w.n_requests) == (said["workflows"], said["stages"], said["requests"])
    form = w.provenance["format"]
    assert said["command"].startswith(
        f"python -m traces convert COPY_OF_THE_SET {name}.workload --format {form} "
    )
    for key in ("source", "licence", "records", "not_imported"):
        assert said[key] == w.provenance[key]


@pytest.mark.parametrize("name", IMPORTED)
def test_names_are_ids_of_the_source_and_nothing_else_is_text(name: str) -> None:
    w = opened(name)
    pattern = SOURCE_ID[name.removesuffix("_train").removesuffix("_shared")]
    assert all(re.fullmatch(pattern, n) for n in w.workflow_names)
    assert all(re.fullmatch(r"[a-z]+(/(role-\d+|other|agent|react|chat))?", a) for a in w.agents)
    assert len(json.dumps(w.provenance)) < 4000


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_workload_is_made_again_by_its_command(name: str, tmp_path: Path) -> None:
    said = workloads.provenance(name)
    generate, out, *options = said["command"].removeprefix("python -m traces ").split()
    assert traces_main([generate, str(tmp_path / out), *options]) == 0
    assert formats.load(tmp_path / out).digest() == opened(name).digest() == said["digest"]


def test_all_files_together_stay_small() -> None:
    assert sum(p.stat().st_size for p in workloads.DATA.iterdir()) < 4_000_000


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown embedded workload 'wekka'; did you mean 'weka'"):
        workloads.open("wekka")
    with pytest.raises(InputError, match="allowed: autocoderover, dynbranch_hci, dynbranch_hci_menu"):
        workloads.provenance("nothing-like-it")


def test_weka_sessions_share_nothing_and_reuse_most_of_themselves() -> None:
    w = opened("weka")
    assert (segment_owner(w) != GLOBAL).all()
    reuse = prefix_reuse(w)
    assert 0.94 < reuse.block_rate(reuse.own_hit_tokens, 64) < 0.97
    assert (reuse.hit_tokens == reuse.own_hit_tokens).all()
    assert set(w.agents) == {"main", "aux", "explore"}


@pytest.mark.parametrize(
    ("group", "low", "high"), [("miniswe", 0.88, 0.95), ("magagent", 0.82, 0.86), ("taubench", 0.80, 0.88)]
)
def test_lmcache_sessions_reuse_themselves_and_hardly_each_other(group: str, low: float, high: float) -> None:
    w = opened("lmcache")
    w = subset(w, [i for i, n in enumerate(w.workflow_names) if n.startswith(group)])
    reuse = prefix_reuse(w)
    full_blocks = int((reuse.prompt_tokens // 16).sum())
    own = int((reuse.own_hit_tokens // 16).sum()) / full_blocks
    assert low < own < high
    assert int((reuse.hit_tokens // 16).sum()) / full_blocks - own < 0.02


def test_lmcache_outputs_have_one_id_a_token() -> None:
    w = opened("lmcache")
    assert w.output_ptr is not None
    assert w.output_ids is not None
    assert np.diff(w.output_ptr).tolist() == w.output_tokens.tolist()
    assert 1000 < len(np.unique(w.output_ids)) < 100_256


@pytest.mark.parametrize("name", ["hover", "swe", "finance"])
def test_what_predictors_learn_from_is_in_no_evaluated_workload(name: str) -> None:
    learned = opened(f"pbkv_{name}_train")
    for evaluated in (f"pbkv_{name}", f"pbkv_{name}_shared"):
        w = opened(evaluated)
        assert not set(learned.workflow_names) & set(w.workflow_names)
        assert set(w.agents) <= set(learned.agents)
        if name == "swe":  # not another run of the same issue, either
            assert not {n.split("/")[1] for n in learned.workflow_names} & {
                n.split("/")[1] for n in w.workflow_names
            }


@pytest.mark.parametrize("name", ["hover", "swe", "finance"])
def test_both_conventions_send_the_same_calls_and_share_more_where_the_transcript_comes_first(
    name: str,
) -> None:
    own, shared = opened(f"pbkv_{name}"), opened(f"pbkv_{name}_shared")
    assert own.workflow_names == shared.workflow_names
    for column in ("stage_kind", "stage_agent", "stage_duration_ns", "output_tokens"):
        assert getattr(own, column).tolist() == getattr(shared, column).tolist()
    rate = [r.hit_tokens.sum() / r.prompt_tokens.sum() for r in (prefix_reuse(own), prefix_reuse(shared))]
    assert rate[1] > rate[0] + 0.1


def test_every_finance_workflow_is_the_same_pipeline() -> None:
    w = opened("pbkv_finance")
    runs = {tuple(w.stage_agent[w.stage_workflow == k].tolist()) for k in range(w.n_workflows)}
    assert len(runs) == 1


def test_hover_shares_system_prompts_and_passages_across_claims() -> None:
    w = opened("hover")
    owner, end = segment_owner(w), w.prefix.end_tokens
    shared = (owner == GLOBAL) & (end > 512)
    assert np.count_nonzero(shared) > 500  # passages below the 512 tokens of a system prompt
    assert int(end[owner == GLOBAL].max()) <= 512 + 272 + 16
    llm = w.stage_kind == StageKind.LLM
    assert {w.agents[i] for i in w.stage_agent[llm]} == {
        "planner",
        "reader",
        "verifier",
        "refiner",
        "summarizer",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_resample_of_eight_thousand_requests_is_quick_and_sound(name: str) -> None:
    base = opened(name)
    count = -(-8000 * base.n_workflows // base.n_requests)
    best = 1e9
    for _ in range(3):
        begin = time.process_time()
        w = resample(base, count, seed=1)
        best = min(best, time.process_time() - begin)
    assert w.errors() == []
    assert best < 0.3


def test_embedding_writes_the_same_bytes_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    w = subset(opened("lmcache"), range(3))
    files = []
    for _ in range(2):
        folder = tmp_path_factory.mktemp("data")
        path = embed(w, folder, {"tokenizer": "cl100k_base"})
        files.append([path.read_bytes(), (folder / "lmcache.provenance.json").read_bytes()])
    assert files[0] == files[1]
    assert " --option tokenizer=cl100k_base --option only=" in json.loads(files[0][1])["command"]


def test_bad_command_lines_end_in_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["weka"], ["weka", "nowhere", "x"], ["weka", "nowhere"], ["wekka", "."]):
        assert main(arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("dynbranch_")])
def test_a_workload_with_branches_was_made_with_the_clock_that_stands_beside_it(name: str) -> None:
    w = opened(name)
    said = clocks.load(w.provenance["clock"]).said()
    assert {k: w.provenance[k] for k in said} == said
    b = w.branches
    assert b is not None
    assert len(b.option_outcome) > 2 * b.n_branches
    assert np.count_nonzero(~w.canonical()) > np.count_nonzero(w.canonical()) / 2


def test_picks_from_menus_are_uniform_and_acts_at_single_offers_are_not() -> None:
    def shares(name: str) -> dict[str, float]:
        b = opened(name).branches
        assert b is not None
        found: dict[str, float] = coverage(b)["most_frequent_outcome"]
        return found

    single, menu = shares("dynbranch_hci"), shares("dynbranch_hci_menu")
    assert single["1"] > 0.55
    assert menu["1"] < 0.45
    places = opened("dynbranch_hci_menu").provenance["records"]["picks_by_place_on_a_menu_of_three"]
    n = sum(places.values())
    # Chi-square with two degrees of freedom, 99th percentile.
    assert sum((k - n / 3) ** 2 / (n / 3) for k in places.values()) < 9.21


def test_routing_is_better_predicted_without_arguments_than_with_them() -> None:
    with_them, without = (
        coverage(b)["drafters"]["retrieval"]
        for n in ("dynbranch_routing", "dynbranch_routing_handler")
        if (b := opened(n).branches) is not None
    )
    assert with_them["choice"]["1"] == without["choice"]["1"] == without["choice and arguments"]["1"]
    assert with_them["choice and arguments"]["1"] < 0.5 * without["choice and arguments"]["1"]
