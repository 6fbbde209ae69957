"""Which runs a comparison is made of, and what makes two runs the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import identity
from experiments.build import build, command
from experiments.inputs import WorkloadRef, prepared
from sim.config import LoadConfig
from traces.errors import InputError

CSV = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i}.5,{100 + i},{1 + i}\n" for i in range(6))


@pytest.fixture
def csv(tmp_path: Path) -> str:
    path = tmp_path / "w.csv"
    path.write_text(CSV)
    return f"workload={path}"


def ids(*words: str) -> list[str]:
    return [job.run_id for job in build(["load.workflows=6", *words])[1]]


def only(*words: str) -> str:
    (run_id,) = ids(*words, "evictor=lru", "seeds=1")
    return run_id


def test_a_run_is_named_by_what_can_change_its_tables(csv: str, tmp_path: Path):
    base = only(csv)
    same = [
        ("executor.jobs=3",), ("store=elsewhere",), ("name=other",), ("slo.ttft_ms=1",),
        ("engine.max_num_seqs=256",), ("profile=H200x1--Qwen3-14B--bf16--vllm",), ("gpu=H200",),
        ("router=round_robin",), ("axes.load.concurrency=[16]",),
    ]  # fmt: skip
    other = [
        ("engine.max_num_seqs=255",), ("load.concurrency=31",), ("gpu=H100",), ("model=Qwen3-32B",),
        ("router=least_loaded",), ("engine.num_gpu_blocks=9",), ("replicas=2",), ("load.think_scale=2",),
    ]  # fmt: skip
    assert {only(csv, *words) for words in same} == {base}
    different = [only(csv, *words) for words in other]
    assert len({base, *different}) == len(other) + 1
    moved = tmp_path / "elsewhere.csv"
    moved.write_text(CSV)
    assert only(f"workload={moved}") == base
    moved.write_text(CSV.replace("0.5,100,1", "0.5,101,1"))
    assert only(f"workload={moved}") != base


def test_sources_and_versions_name_a_run_but_documents_do_not(csv: str, monkeypatch):
    base = only(csv)
    monkeypatch.setattr(identity, "sources_digest", lambda: "other")
    assert only(csv) != base
    monkeypatch.undo()
    monkeypatch.setattr(identity.importlib.metadata, "version", lambda name: "0")
    assert only(csv) != base


def test_a_users_policy_names_a_run_by_its_source(csv: str, tmp_path: Path):
    source = (Path(__file__).parents[2] / "policies" / "evictors" / "lru.py").read_text()
    found = set()
    for folder, text in {"a": source, "b": source, "c": source + "\n# a change\n"}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(text)
        words = (csv, f"policy_path={tmp_path / folder}", "evictor=mine", "seeds=1")
        found.add((folder, *ids(*words)))
    by_folder = dict(found)
    assert by_folder["a"] == by_folder["b"] != by_folder["c"]


def test_equal_runs_run_once(csv: str):
    plan, jobs, _ = build([csv, "evictor=lru,lru,s3_fifo", "evictor.promote_hits=2,3", "seeds=2"])
    assert [a.label for a in plan.arms] == ["lru", "s3_fifo", "s3_fifo(promote_hits=3)"]
    assert len(jobs) == 6
    plan, jobs, _ = build([csv, "evictor=lru", "engine.max_model_len=null,40960", "seeds=1"])
    assert len(plan.arms) == 2
    assert len(jobs) == len(set(plan.runs.values()))


def test_arms_and_axes_are_labelled_and_compared_pointwise(csv: str):
    plan, jobs, _ = build([csv, "evictor=lru,belady_leaf", "load.concurrency=2,4", "seeds=2"])
    assert [a.label for a in plan.arms] == [
        "lru @ load.concurrency=2",
        "belady_leaf @ load.concurrency=2",
        "lru @ load.concurrency=4",
        "belady_leaf @ load.concurrency=4",
    ]
    assert plan.axis_points() == [{"load.concurrency": 2}, {"load.concurrency": 4}]
    assert [a.offline_reference for a in plan.arms] == [False, True, False, True]
    assert plan.arms[3].overrides == ("evictor=belady_leaf", "load.concurrency=4")
    assert len(jobs) == len(plan.runs) == 8
    assert {j.config.load.concurrency for j in jobs} == {2, 4}


def test_seeds_are_paired_across_arms(csv: str):
    plan, jobs, _ = build([csv, "evictor=lru,sieve", "seeds=[3,9]"])
    assert plan.seeds == (3, 9)
    assert sorted(plan.runs) == [("lru", 3), ("lru", 9), ("sieve", 3), ("sieve", 9)]
    assert [j.config.seed for j in jobs] == [3, 3, 9, 9]


def test_the_reproducing_command_drops_what_changes_no_result():
    words = ["evictor=lru", "executor=ray", "executor.jobs=2", "store=x", "engine=--max-num-seqs 4"]
    assert command(words) == "python -m experiments run evictor=lru 'engine=--max-num-seqs 4'"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["workload=wekka"], "unknown embedded workload 'wekka'; did you mean 'weka'?"),
        (["workload=none.csv"], "workload=none.csv: no such file; embedded: "),
        (["profile=H200x1--Qwen3-32B--bf17--vllm"], "unknown profile"),
        (["gpu=H201"], "unknown profile gpu 'H201'; did you mean 'H200'?"),
        (["gpu=A6000", "model=Qwen3-32B"], "A6000"),
        (["model=none.json"], "none.json"),
        (
            ["workload=weka", "load.loop=open"],
            "weka: no arrival times; give load.rate_per_s or load.loop=closed",
        ),
        (["CSV", "load.loop=open", "load.workflows=7"], "records the arrivals of 6 workflows"),
        (["engine.gpu_memory_utilization=0.2"], "no memory for KV"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_written(
    words: list[str], said: str, csv: str, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        build([csv if w == "CSV" else w for w in words])
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["w.csv"]


def test_engine_arguments_describe_an_engine_and_words_win_over_them(csv: str):
    words = [csv, "evictor=lru", "seeds=1", "engine.queue=priority"]
    text = "--model Qwen/Qwen3-14B --max-num-seqs 64 --block-size 32 --gpu-memory-utilization 0.8"
    plan, jobs, _ = build([*words, f"engine={text}"])
    engine = jobs[0].config.engine
    assert (engine.max_num_seqs, engine.block_tokens, engine.queue) == (64, 32, "priority")
    assert jobs[0].profile.name == "H200x1--Qwen3-14B--bf16--vllm"
    assert any(n.startswith("engine arguments: default: ") for n in plan.notes)
    with pytest.raises(InputError, match="did you mean '--max-num-seqs'"):
        build([*words, "engine=--max-num-seq 64"])


def test_a_config_json_makes_a_roofline_profile(csv: str, tmp_path: Path):
    shape = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 8,
        "hidden_size": 1024,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 4096,
        "vocab_size": 32000, "max_position_embeddings": 8192, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(shape))
    _, jobs, _ = build([csv, "evictor=lru", "seeds=1", f"model={tmp_path / 'config.json'}", "gpu=A100"])
    assert jobs[0].profile.identity["timing"] == "roofline"
    assert jobs[0].profile.identity["gpu"] == "A100"
    assert jobs[0].profile.max_model_len == 8192


def test_recorded_arrivals_are_replayed_as_they_are(csv: str):
    ref = WorkloadRef(csv.removeprefix("workload="))
    recorded = prepared(ref, LoadConfig(loop="open"), 0)
    assert recorded.workflow_arrival_ns is not None
    assert recorded.workflow_arrival_ns.tolist() == [500_000_000 + i * 10**9 for i in range(6)]
    first = prepared(ref, LoadConfig(loop="open", workflows=4), 0)
    assert first.workflow_arrival_ns is not None
    assert first.workflow_arrival_ns.tolist() == recorded.workflow_arrival_ns.tolist()[:4]


def test_a_seed_draws_the_order_and_copies_fill_up(csv: str):
    ref = WorkloadRef(csv.removeprefix("workload="))
    orders = {prepared(ref, LoadConfig(), seed).workflow_names for seed in range(6)}
    assert len(orders) > 1
    assert all(sorted(o) == sorted(prepared(ref, LoadConfig(), 0).workflow_names) for o in orders)
    assert prepared(ref, LoadConfig(workflows=15), 0).n_workflows == 15
    plan, _, _ = build([csv, "evictor=lru", "seeds=1", "load.workflows=15"])
    assert any("w.csv holds 6 workflows; 15 are copies" in note for note in plan.notes)


def test_a_draft_model_takes_memory_from_the_kv_pool() -> None:
    words = ["workload=mtbench", "profile=A100x1--Qwen3-8B--bf16--vllm", "seeds=1"]
    _, jobs, _ = build([*words, "drafter=none,suffix,eagle3", "budget=fixed_k"])
    blocks = {job.manifest["policies"]["drafters"]: job.kv_blocks for job in jobs}
    assert blocks["none"] == blocks["suffix"] > blocks["eagle3"] > 0.8 * blocks["none"]
    said = {job.label.split(" ")[0].split("(")[0]: job.manifest["kv"]["source"] for job in jobs}
    assert "draft model" in said["eagle3"]
    assert "draft model" not in said["suffix"]
