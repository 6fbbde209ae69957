"""What arms are called, wherever they are named."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from experiments.arm_names import ALL_OFF, OFF, arm_names
from experiments.build import build
from experiments.run import run
from policies.registry import SIMPLEST

CSV = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i}.5,{100 + i},{1 + i}\n" for i in range(6))


def name_of(*given: dict[str, str], listed: bool = False) -> list[str]:
    return arm_names([SIMPLEST | g for g in given], listed=listed)


def planned(*words: str) -> list[str]:
    return [a.name for a in build(["load.workflows=4", "seeds=1", *words])[0].arms]


@pytest.fixture
def csv(tmp_path: Path) -> str:
    path = tmp_path / "w.csv"
    path.write_text(CSV)
    return f"workload={path}"


@pytest.mark.parametrize("family", sorted(OFF))
def test_where_one_family_varies_its_policy_is_the_name_even_when_it_is_off(family: str):
    assert name_of({}, {family: "other(x=1)"}) == [OFF[family], "other(x=1)"]


def test_every_product_of_families_has_names_of_its_own():
    families = ("gates", "candidates", "drafters", "evictors", "bucketers")
    values = [(SIMPLEST[f], "oracle", "other") for f in families]
    written = [SIMPLEST | dict(zip(families, chosen, strict=True)) for chosen in itertools.product(*values)]
    for listed in (False, True):
        found = arm_names(written, listed=listed)
        assert len(set(found)) == len(written) == 3**5
        parts = [re.split(r" \+ ", n) for n in found]
        assert not {p for ps in parts for p in ps} & {"never", "none"}


def test_what_all_arms_share_or_have_off_is_in_no_name():
    assert name_of({}, {"drafters": "eagle3"}, {"drafters": "eagle3", "budgets": "fixed_k"}) == [
        ALL_OFF, "eagle3", "eagle3 + fixed_k",
    ]  # fmt: skip
    assert name_of({"routers": "r"}, {"routers": "r", "gates": "priced", "reuse": "subgraph"}) == [
        ALL_OFF, "priced + subgraph",
    ]  # fmt: skip


def test_a_product_names_what_always_acts_and_a_list_only_what_it_adds():
    cells = [{}, {"drafters": "mtp"}, {"bucketers": "max_pad"}, {"drafters": "mtp", "bucketers": "max_pad"}]
    assert name_of(*cells) == ["eager", "mtp + eager", "max_pad", "mtp + max_pad"]
    assert name_of(*cells, listed=True) == ["eager", "mtp", "max_pad", "mtp + max_pad"]


def test_a_list_whose_first_arm_is_not_the_bare_one_names_arms_in_full():
    cells = [{"drafters": "mtp", "bucketers": "max_pad"}, {"bucketers": "max_pad"}, {"drafters": "mtp"}]
    assert name_of(*cells, listed=True) == ["mtp + max_pad", "max_pad", "mtp + eager"]


def test_policies_of_equal_names_are_told_apart_by_their_option():
    cells = [{}, {"candidates": "oracle"}, {"drafters": "oracle"}, {"drafters": "oracle", "candidates": "x"}]
    assert name_of(*cells) == [ALL_OFF, "candidate=oracle", "drafter=oracle", "x + oracle"]


def test_plans_name_their_arms_so(csv: str):
    assert planned(csv, "evictor=lru,sieve") == ["lru", "sieve"]
    assert planned(csv, "evictor=lru", "drafter=none,eagle3") == ["none", "eagle3"]
    assert planned(csv, "evictor=lru,sieve", "router=round_robin,least_loaded") == [
        "lru + round_robin", "lru + least_loaded", "sieve + round_robin", "sieve + least_loaded",
    ]  # fmt: skip
    names = planned("experiment=together", csv)
    assert names[:5] == [
        "lru + vllm_ladder", "priced + deployed", "eagle3 + fixed_k(k=3)", "lookahead",
        "plan_buffer(d_max=4, ragged=true)",
    ]  # fmt: skip
    assert len(set(names)) == 12
    crossed = planned("experiment=together", csv, "evictor=lru,sieve")
    assert "priced + deployed + sieve + vllm_ladder" in crossed
    assert len(set(crossed)) == len(crossed)


def test_every_place_calls_an_arm_the_same(csv: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [csv, "drafter=none,eagle3", "budget=none,fixed_k(k=2)", "evictor=lru", "executor.jobs=1"]
    assert run([*words, "seeds=2", "load.workflows=4", f"store={tmp_path / 'store'}"]) == 0
    (folder,) = (tmp_path / "store").glob("*/*/plan.json")
    names = [a["name"] for a in json.loads(folder.read_text())["arms"]]
    assert names == [ALL_OFF, "fixed_k(k=2)", "eagle3", "eagle3 + fixed_k(k=2)"]
    summary = json.loads((folder.parent / "summary.json").read_text())
    assert [a["name"] for a in summary["groups"][0]["arms"]] == names
    page = next(folder.parent.glob("*.html")).read_text()
    table = capsys.readouterr().out
    for name in names:
        assert name in page
        assert name in table
    for text in (page, table, *summary["headline"]):
        assert "none +" not in text
        assert "+ none" not in text
