"""What words and config files say together."""

from __future__ import annotations

import pytest

from experiments.compose import compose
from experiments.overrides import names
from experiments.policyspec import parse, written
from traces.errors import InputError


def evictors(*words: str) -> list[str]:
    choices = compose(words).policies["evictors"]
    return [written(c, c.load(None), None) for c in choices]


def test_the_main_job_compares_three_evictors_over_at_least_five_seeds():
    composed = compose([])
    assert [c.name for c in composed.policies["evictors"]] == ["lru", "lifecycle", "belady_leaf"]
    assert len(composed.settings({}).seeds) >= 5
    assert composed.axes == {}
    assert all(len(c) == 1 for f, c in composed.policies.items() if f != "evictors")


@pytest.mark.parametrize("experiment", names("experiment"))
@pytest.mark.parametrize("sweep", [None, *names("sweep")])
def test_every_experiment_composes_with_every_sweep(experiment: str, sweep: str | None):
    words = [f"experiment={experiment}"] + ([f"+sweep={sweep}"] if sweep else [])
    composed = compose(words)
    several = any(len(choices) > 1 for arm in composed.arms for choices in arm.values())
    assert sweep is None or composed.axes or several or len(composed.arms) > 1
    for name, values in composed.axes.items():
        for value in values:
            composed.settings({name: value})


def test_listed_arms_are_compared_as_they_are_until_their_family_is_named():
    def arms(*words: str) -> list[tuple[str, str]]:
        return [
            (e.name, p.name)
            for arm in compose(["experiment=pbkv", *words]).arms
            for e in arm["evictors"]
            for p in arm["prefetchers"]
        ]

    listed = arms()
    assert listed[:4] == [
        ("lru", "none"), ("lifecycle", "none"), ("lookahead", "none"), ("lookahead", "conservative"),
    ]  # fmt: skip
    assert ("lru", "conservative") not in listed
    assert set(arms("evictor=sieve")) == {("sieve", "none"), ("sieve", "conservative")}
    assert set(arms("prefetcher=none")) == {(e, "none") for e, _ in listed}
    assert len(arms("evictor.gamma=0.5,0.9")) == len(listed) + 2
    with pytest.raises(InputError, match="unknown option of evictor"):
        arms("evictor.gama=0.5")


def test_words_win_over_config_files():
    assert compose(["load.concurrency=7"]).settings({}).load.concurrency == 7
    assert compose(["seeds=[4,2]"]).settings({}).seeds == (4, 2)
    assert compose(["seeds=3,5"]).settings({}).seeds == (3, 5)
    assert compose(["seeds=2"]).settings({}).seeds == (0, 1)
    assert compose(["experiment=bench"]).settings({}).engine.num_gpu_blocks == 25_000
    assert (
        compose(["experiment=bench", "engine.num_gpu_blocks=null"]).settings({}).engine.num_gpu_blocks is None
    )
    assert evictors("evictor=sieve,arc") == ["sieve", "arc"]
    assert evictors("evictor=[sieve,arc]") == ["sieve", "arc"]


def test_comma_lists_and_axes_mean_the_same():
    expected = {"load.concurrency": [8, 16]}
    assert compose(["load.concurrency=8,16"]).axes == expected
    assert compose(["axes.load.concurrency=[8,16]"]).axes == expected
    assert compose(["axes={load.concurrency:[8,16]}"]).axes == expected
    assert compose(["load.concurrency=range(8,17,8)"]).axes == expected
    assert compose(["+sweep=concurrency", "load.concurrency=8,16"]).axes == expected
    assert compose(["sweep=concurrency", "load.concurrency=8"]).axes == {}
    assert compose(["workload=weka,hover"]).axes == {"workload": ["weka", "hover"]}


def test_axes_over_policies_are_arms():
    composed = compose(["axes={evictor:[lru,sieve],load.concurrency:[1,2]}"])
    assert [c.name for c in composed.policies["evictors"]] == ["lru", "sieve"]
    assert list(composed.axes) == ["load.concurrency"]


def test_policy_options_reach_only_the_policies_that_have_them():
    assert evictors("evictor=lru,s3_fifo", "evictor.promote_hits=3") == ["lru", "s3_fifo(promote_hits=3)"]
    assert evictors("evictor=lru,s3_fifo", "evictor.promote_hits=2,3") == [
        "lru",
        "s3_fifo",
        "s3_fifo(promote_hits=3)",
    ]
    assert evictors("evictor=lru,s3_fifo(promote_hits=1)") == ["lru", "s3_fifo(promote_hits=1)"]


def test_text_options_are_taken_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b (1).csv").write_text("x")
    composed = compose(["workload=a,b (1).csv", "store=some dir/x=y"])
    assert composed.axes == {}
    assert composed.settings({}).workload == "a,b (1).csv"
    assert composed.settings({}).store == "some dir/x=y"


def test_equal_policies_are_written_alike():
    a = parse("evictors", "s3_fifo(promote_hits=2)")
    b = parse("evictors", "s3_fifo")
    assert written(a, a.load(None), None) == written(b, b.load(None), None) == "s3_fifo"
