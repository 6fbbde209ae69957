"""Laws of the embedded workloads: sound, small, numbers only, and what their provenance says they are."""

import json
import re
import time
from functools import cache

import numpy as np
import pytest

from traces import workloads
from traces.errors import InputError
from traces.resample import GLOBAL, resample, segment_owner, subset
from traces.reuse import prefix_reuse
from traces.schema import StageKind, Workload
from traces.workloads.__main__ import embed, main

NAMES = ("hover", "lmcache", "weka")
SOURCE_ID = {
    "weka": r"trace_\d{4}",
    "lmcache": r"(miniswe|magagent|taubench)/[0-9a-f]{32}(\.[a-z_]+)?",
    "hover": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}


@cache
def opened(name: str) -> Workload:
    return workloads.open(name)


def test_all_three_are_there() -> None:
    assert workloads.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_is_sound_and_is_what_its_provenance_says(name: str) -> None:
    w, said = opened(name), workloads.provenance(name)
    assert w.errors() == []
    assert w.name == said["name"] == name
    assert w.digest() == said["digest"]
    assert (w.n_workflows, w.n_stages, w.n_requests) == (said["workflows"], said["stages"], said["requests"])
    assert said["command"].startswith(
        f"python -m traces convert COPY_OF_THE_SET {name}.workload --format {name} "
    )
    for key in ("source", "licence", "records", "not_imported"):
        assert said[key] == w.provenance[key]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_ids_of_the_source_and_nothing_else_is_text(name: str) -> None:
    w = opened(name)
    assert all(re.fullmatch(SOURCE_ID[name], n) for n in w.workflow_names)
    assert all(re.fullmatch(r"[a-z]+(/(role-\d+|other))?", a) for a in w.agents)
    assert len(json.dumps(w.provenance)) < 4000


def test_all_files_together_stay_small() -> None:
    assert sum(p.stat().st_size for p in workloads.DATA.iterdir()) < 3_000_000


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown embedded workload 'wekka'; did you mean 'weka'"):
        workloads.open("wekka")
    with pytest.raises(InputError, match="allowed: hover, lmcache, weka"):
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
        begin = time.perf_counter()
        w = resample(base, count, seed=1)
        best = min(best, time.perf_counter() - begin)
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
