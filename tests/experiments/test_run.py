"""The run command from end to end, in this process, on a workload of a few requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.job import Job, Report, execute
from experiments.run import run
from experiments.store import Store


@pytest.fixture
def words(tmp_path: Path, monkeypatch) -> list[str]:
    rows = "".join(f"{i}.5,{100 + 10 * i},{5 + i}\n" for i in range(12))
    (tmp_path / "w.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    monkeypatch.chdir(tmp_path)
    return [
        "workload=w.csv",
        "evictor=lru,sieve",
        "seeds=2",
        "executor.jobs=1",
        "load.concurrency=3",
        "load.workflows=null",
    ]


def test_a_run_prints_a_table_and_ends_with_the_report(words: list[str], capsys):
    assert main(["run", *words]) == 0
    out, err = capsys.readouterr()
    last = out.splitlines()[-1]
    assert last.startswith("report: runs/experiments/main-")
    report = Path(last.removeprefix("report: "))
    assert report.stat().st_size > 1000
    assert "sieve" in out
    assert "main: 2 arms x 2 seeds = 4 runs" in err
    summary = json.loads((report.parent / "summary.json").read_text())
    assert summary["seeds"] == [0, 1]
    for command in (["report"], ["report", "main"], ["list", "runs"]):
        assert main(command) == 0
    assert capsys.readouterr().out.count(last) == 2


def test_a_manifest_says_where_every_number_is_from(words: list[str]):
    assert main(["run", *words, "store=s"]) == 0
    store = Store(Path("s"))
    for run_id in store.run_ids():
        manifest = store.manifest(run_id)
        assert manifest["run_id"] == run_id
        assert manifest["seed"] in (0, 1)
        assert manifest["config"]["load"]["concurrency"] == 3
        assert manifest["kv"]["blocks"] > 0
        assert "GiB" in manifest["kv"]["source"]
        assert manifest["profile"]["identity"]["gpu"] == "H200"
        assert set(manifest["profile"]["error"]) >= {"mape_percent", "how"}
        assert manifest["versions"]["numpy"]
        assert manifest["stats"]["requests"] == 12
        assert manifest["overrides"]


def _half_broken(job: Job, report: Report) -> None:
    if job.config.seed == 1:
        raise RuntimeError("this seed is broken")
    execute(job, report)


def _broken(job: Job, report: Report) -> None:
    raise RuntimeError("all is broken")


def test_failures_end_in_a_table_and_status_1(words: list[str], capsys):
    assert run(words, task=_half_broken) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith("report: ")
    assert "2 of 4 runs failed:" in err
    lines = [line for line in err.splitlines() if "this seed is broken" in line]
    assert [line.split()[:3] for line in lines] == [["lru", "seed", "1"], ["sieve", "seed", "1"]]
    # The same command runs what failed, and then nothing is missing.
    assert run(words) == 0
    assert "4 runs, 2 of them in the store already" in capsys.readouterr().err


def test_nothing_to_report_is_said(words: list[str], capsys):
    assert run(words, task=_broken) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "no run finished: there is nothing to report" in err


def test_a_dry_run_lists_the_runs_and_writes_nothing(words: list[str], tmp_path: Path, capsys):
    assert main(["run", "--dry-run", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all("missing" in line for line in lines[:4])
    assert [p.name for p in tmp_path.iterdir()] == ["w.csv"]


def test_a_run_is_exported_for_trace_viewers_and_figures_are_drawn(words: list[str], capsys):
    assert main(["run", *words]) == 0
    run_id = Store(Path("runs")).run_ids()[0]
    assert main(["trace", run_id[:12], "--out", "t.json"]) == 0
    assert json.loads(Path("t.json").read_text())["traceEvents"]
    assert main(["plot", "--figure", "latency_cdf", "--out", "f.svg"]) == 0
    assert Path("f.svg").read_text().startswith("<?xml")
    capsys.readouterr()
    assert main(["plot", "--figure", "latency_cfd", "--out", "f.svg"]) == 2
    assert "latency_cdf" in capsys.readouterr().err
