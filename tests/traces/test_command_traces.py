# ruff: noqa: E501 - a table: one row, one line
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from traces import formats, workloads
from traces.__main__ import main


def said(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_generated_csv_reads_back_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    csv, native = tmp_path / "w.csv", tmp_path / "w.workload"
    for out in (csv, native):
        assert main(["generate", str(out), "--requests", "500", "--seed", "3"]) == 0
    assert formats.load(csv).digest() == formats.load(native).digest()
    assert main(["convert", str(csv), str(tmp_path / "again.workload")]) == 0
    assert formats.load(tmp_path / "again.workload").digest() == formats.load(csv).digest()
    assert "500 requests" in said(capsys)[0]


def test_the_default_workload_is_the_benchmark_mix(tmp_path: Path) -> None:
    out = tmp_path / "w.csv"
    assert main(["generate", str(out), "--requests", "4000"]) == 0
    w = formats.load(out)
    assert w.workflow_arrival_ns is not None
    assert 3.8 < w.n_requests / (w.workflow_arrival_ns[-1] / 1e9) < 4.2
    assert 480 < sorted(w.prompt_tokens)[2000] < 545
    assert 150 < sorted(w.output_tokens)[2000] < 170


@pytest.mark.parametrize("kind", ["gamma", "diurnal", "poisson"])
def test_provenance_states_the_options_that_had_a_say(kind: str, tmp_path: Path) -> None:
    out = tmp_path / "w.workload"
    assert main(["generate", str(out), "--requests", "20", "--arrivals", kind]) == 0
    provenance = formats.load(out).provenance
    assert provenance["seed"] == 0
    assert ("cv" in provenance["options"]) == (kind == "gamma")
    assert ("period_s" in provenance["options"]) == (kind == "diurnal")
    assert str(tmp_path) not in json.dumps(provenance)


def test_lengths_can_come_from_a_trace(tmp_path: Path) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.workload"
    source.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,1\n1,20,2\n2,30,3\n")
    spec = f"empirical:{source}"
    assert main(["generate", str(out), "--requests", "90", "--prompt", spec, "--output", spec]) == 0
    w = formats.load(out)
    assert {(int(p), int(o)) for p, o in zip(w.prompt_tokens, w.output_tokens, strict=True)} == {
        (10, 1),
        (20, 2),
        (30, 3),
    }
    assert str(tmp_path) not in json.dumps(w.provenance)


def test_describe_prints_text_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "s.workload"
    assert main(["generate", str(out), "--sessions", "12", "--system-prompts", "2"]) == 0
    capsys.readouterr()
    assert main(["describe", str(out)]) == 0
    text = said(capsys)[0]
    assert "12 workflows" in text
    assert "prefix reuse, infinite cache" in text
    assert main(["describe", str(out), "--json"]) == 0
    assert json.loads(said(capsys)[0])["workflows"] == 12


def test_importer_options_come_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"input_length": 40, "hash_ids": [1, 2, 3], "output_length": 1}\n')
    arguments = ["describe", str(path), "--json", "--option", "block_tokens=16"]
    assert main(arguments) == 0
    assert json.loads(said(capsys)[0])["prefix_reuse"]["block_tokens"] == 16
    assert main([*arguments[:-1], "block_tokens"]) == 2
    assert said(capsys)[1] == "--option block_tokens: expected NAME=VALUE\n"


def test_what_is_not_imported_is_said_when_converting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "z.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,0,1\n0,1,1\n")
    assert main(["convert", str(path), str(tmp_path / "z.workload")]) == 0
    assert "not imported: 1 prompt of 0 tokens" in said(capsys)[0]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["generate", "OUT.csv", "--sessions", "3"], "cannot hold its workflows of several stages, prefix identity, agents; write .workload"),
        (["generate", "OUT.cvs"], "unknown output suffix '.cvs'; did you mean '.csv'? allowed: .csv, .workload"),
        (["generate", "OUT.csv", "--requests", "0"], "count=0: expected 1 to 100000000"),
        (["generate", "OUT.csv", "--requests", "1", "--sessions", "1"], "--requests and --sessions: give one of them"),
        (["generate", "OUT.csv", "--rate", "nan"], "rate_per_s=nan"),
        (["generate", "OUT.csv", "--prompt", "fixed:0"], "--prompt: got 'fixed:0', expected whole numbers from 1"),
        (["generate", "OUT.csv", "--sessions", "1", "--turns", "empirical:x"], "--turns: 'empirical' gives prompt and output tokens only"),
        (["generate", "OUT.csv", "--turns", "fixed:3"], "--turns: has a say with --sessions only"),
        (["generate", "OUT.csv", "--cv", "3"], "--cv: has a say with --arrivals gamma only"),
        (["generate", "OUT.csv", "--prompt", "empirical:nowhere.csv"], "nowhere.csv: no such file"),
        (["generate", "nowhere/OUT.csv", "--requests", "1"], "cannot write: No such file or directory"),
        (["describe", "nowhere"], "unknown embedded workload 'nowhere'"),
        (["describe", "nowhere.csv"], "nowhere.csv: no such file"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_writes_nothing(
    arguments: list[str],
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = said(capsys)
    assert (out, err.count("\n")) == ("", 1)
    assert error in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [[], ["describ", "x"], ["generate", "x.csv", "--cv", "much"], ["describe"]]
)
def test_wrong_usage_is_one_line_and_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(arguments)
    assert exited.value.code == 2
    assert said(capsys)[1].count("\n") == 1


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    out = tmp_path / "w.workload"
    assert main(["generate", str(out), "--requests", "5"]) == 0
    command = subprocess.Popen(
        [sys.executable, "-m", "traces", "describe", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert command.stdout is not None
    command.stdout.close()
    assert command.stderr is not None
    with command.stderr:
        assert command.stderr.read() == b""
    assert command.wait() == 0


def test_embedded_workloads_are_described_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    for name in workloads.names():
        assert main(["describe", name, "--json"]) == 0
        assert json.loads(said(capsys)[0])["digest"] == workloads.open(name).digest()
