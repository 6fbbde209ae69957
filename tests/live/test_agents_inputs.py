"""Wrong input to the workflow host: one line, exit status 2, nothing written, nothing sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_openai import FakeServer, served

from live.__main__ import main
from live.agents.journal import decoded, read_journal
from live.agents.load import ServerLoad, gauge
from live.agents.prompts import Prompts
from policies.branch_events import HostLoad
from traces import workloads
from traces.errors import InputError
from traces.rendering import Rendering
from traces.schema import StageKind


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeServer]:
    with served(FakeServer()) as server:
        yield server


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dynbranch_routin"], "did you mean 'dynbranch_routing'"),
        (["hover"], "has no branches"),
        (["dynbranch_routing", "--gate", "fannout"], "did you mean 'fanout'"),
        (["dynbranch_routing", "--gate", "fanout", "--gate-option", "kk=2"], "did you mean 'k'"),
        (["dynbranch_routing", "--gate", "fanout", "--gate-option", "k"], "expected NAME=VALUE"),
        (["dynbranch_routing", "--branching", "demand=wait"], "demand"),
        (["dynbranch_routing", "--branching", "fils_max=2"], "did you mean 'fills_max'"),
        (["dynbranch_routing", "--model", "fakee"], "not one of those served: fake"),
        (["dynbranch_routing", "--concurrency", "0"], "concurrency=0"),
        (["dynbranch_routing", "--scale", "0"], "scale=0.0, allowed: 0.001 to 1e+06"),
        (["dynbranch_routing", "--output-scale", "1e-320"], "output_scale=1e-320"),
        (["dynbranch_routing", "--time-scale", "inf"], "time_scale=inf"),
        (["dynbranch_routing", "--retries", "-1"], "retries=-1"),
        (["dynbranch_routing", "--deadline-s", "nan"], "deadline_s=nan"),
        (["dynbranch_routing", "--gate", "fanout"], "needs a candidate drafter"),
        (["dynbranch_routing", "--store", "s.sqlite"], "nothing is reused without a reuse policy"),
        (["dynbranch_routing", "--gate", "priced", "--candidate", "retrieval"], "--profile FILE"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(
    arguments: list[str], said: str, fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    base = ["--server", fake.url, "--out", str(out), "--workflows", "2", "--time-scale", "0.001"]
    assert main(["agents", *base, *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not fake.bodies
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["localhost:8000", "file:///etc/passwd", "http://127.0.0.1:1"])
def test_a_server_that_is_not_there_is_one_line(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agents", "dynbranch_routing", "--server", url, "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_never_written_over_another(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    given = ["agents", "dynbranch_routing", "--server", fake.url, "--out", str(out), "--workflows", "1"]
    assert main([*given, "--time-scale", "0"]) == 0
    assert "1 of 1 finished" in capsys.readouterr().out
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    assert main(given) == 2
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    fake.bodies.clear()


def test_equal_rendered_inputs_give_equal_prompts_and_others_others() -> None:
    workload = workloads.open("dynbranch_react")
    rendering = Rendering(workload)
    prompts = Prompts(workload, rendering, lambda value: None, 16.0, 16.0)
    values: dict[int, int] = {}
    seen: dict[int, str] = {}
    last = -1
    for stage in range(900):
        if int(workload.stage_workflow[stage]) != last:
            last, values = int(workload.stage_workflow[stage]), {}
        rendered = rendering.rendered(stage, values)
        values[stage] = rendering.value(stage, rendered, ())
        if workload.stage_kind[stage] == StageKind.LLM:
            prompt = prompts.prompt(stage, values, ())
            assert seen.setdefault(rendered, prompt) == prompt
    assert 300 < len(set(seen.values())) == len(seen)


def test_a_prompt_shows_the_versions_that_it_read() -> None:
    workload = workloads.open("dynbranch_routing")
    prompts = Prompts(workload, Rendering(workload), lambda value: None, 16.0, 16.0)
    first = int((workload.stage_kind == StageKind.LLM).argmax())
    assert prompts.prompt(first, {}, ((1, 0),)) != prompts.prompt(first, {}, ((1, 1),))


def test_gauges_are_summed_over_labels_and_nothing_else() -> None:
    text = (
        "# HELP vllm:num_requests_running x\n"
        'vllm:num_requests_running{engine="0",model_name="a b"} 2.0\n'
        'vllm:num_requests_running{engine="1",model_name="a b"} 3.0\n'
        'vllm:num_requests_running_total{engine="1"} 50.0\n'
    )
    assert gauge(text, "num_requests_running") == 5.0
    assert gauge(text, "num_requests_waiting") is None


def test_without_metrics_the_load_is_our_own_canonical_requests() -> None:
    load = ServerLoad(slots=8)
    load.canonical, load.fills = 3, 5
    assert load.now() == HostLoad(3 / 8, 3)


def test_others_requests_stay_when_ours_come_and_go_between_polls() -> None:
    load = ServerLoad(slots=8)
    load.canonical, load.fills = 2, 3
    load.heard(6.0)
    load.fills = 0
    assert load.now().canonical_seqs == 3
    load.canonical, load.fills = 4, 6
    assert load.now() == HostLoad(5 / 8, 5)


@pytest.mark.parametrize("said", ["1.0.0", "nan", "inf", "-3", "x"])
def test_a_gauge_that_makes_no_sense_is_left_out(said: str) -> None:
    assert gauge(f"vllm:num_requests_running {said}", "num_requests_running") is None
    assert gauge("vllm:num_requests_running 3.0 1700000000", "num_requests_running") == 3.0


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000 + "\n",
        '{"event": 5, "commands": "ab"}\n',
        '{"event": {"is": "Popen", "of": ["ls"]}, "commands": []}\n',
        "[]\n",
        "{\n",
        '{"event": 1}\n',
    ],
)
def test_a_journal_makes_nothing_but_events_and_commands(line: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(line)
    with pytest.raises(InputError, match=r"journal\.jsonl, line 1|journal\.jsonl:1"):
        list(read_journal(path))
    with pytest.raises((ValueError, KeyError)):
        decoded({"is": "Popen", "of": []})


def test_a_line_that_a_dying_process_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"event": {"is": "Closed", "of": [5, 1]}, "commands": []}\n{"event": {"is"')
    assert [event.time_ns for event, _ in read_journal(path)] == [5]
