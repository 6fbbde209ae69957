"""Measured runs: one run in every form is the same run; what is wrong is named by file, line and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.runs import MeasuredRun
from calibration.runs_read import read_run
from traces.errors import InputError

REQUESTS = [
    (0.0, 100, 4, 0.05, [0.01, 0.02, 0.01]),
    (0.5, 200, 2, 0.07, [0.03]),
    (0.25, 50, 3, 0.06, [0.01, 0.01]),
]


def bench(**changes: Any) -> dict[str, Any]:
    return {
        "request_rate": "inf", "max_concurrency": 2,
        "input_lens": [r[1] for r in REQUESTS], "output_lens": [r[2] for r in REQUESTS],
        "ttfts": [r[3] for r in REQUESTS], "itls": [r[4] for r in REQUESTS],
        "start_times": [1000.0 + r[0] for r in REQUESTS], "errors": ["", "", ""],
        **changes,
    }  # fmt: skip


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_one_run_reads_alike_in_every_form(tmp_path: Path) -> None:
    csv = "arrival_s,prompt_tokens,output_tokens,ttft_ms,e2e_ms\n" + "".join(
        f"{a},{p},{o},{1e3 * t:.6f},{1e3 * (t + sum(i)):.6f}\n" for a, p, o, t, i in REQUESTS
    )
    lines = "".join(
        json.dumps({"start_time": a, "input_len": p, "output_len": o, "ttft": t, "itls": i}) + "\n"
        for a, p, o, t, i in REQUESTS
    )
    stamps = "sent_ns,in_toks,out_toks,first_ns,last_ns\n" + "".join(
        f"{round(a * 1e9)},{p},{o},{round((a + t) * 1e9)},{round((a + t + sum(i)) * 1e9)}\n"
        for a, p, o, t, i in REQUESTS
    )
    runs = [
        read_run(write(tmp_path, "a.json", json.dumps(bench()))),
        read_run(write(tmp_path, "b.csv", csv)),
        read_run(write(tmp_path, "c.jsonl", lines)),
        read_run(write(tmp_path, "d.csv", stamps)),
    ]
    for run in runs:
        assert run.arrival_ns is not None
        assert run.arrival_ns.tolist() == [0, 250_000_000, 500_000_000]
        assert run.prompt_tokens.tolist() == [100, 50, 200]
        np.testing.assert_allclose(run.ttft_ms, [50, 60, 70])
        np.testing.assert_allclose(run.e2e_ms, [90, 80, 100])
        np.testing.assert_allclose(run.tpot_ms, [40 / 3, 10, 30])
        assert run.throughput_tok_s() == pytest.approx(9 / 0.6)


def test_failed_requests_are_left_out_and_counted(tmp_path: Path) -> None:
    run = read_run(write(tmp_path, "a.json", json.dumps(bench(errors=["", "timeout", ""]))))
    assert len(run) == 2
    assert sum(run.dropped.values()) == 1


def test_without_arrivals_the_clients_bound_makes_a_closed_loop(tmp_path: Path) -> None:
    body = bench()
    del body["start_times"]
    workload, load = read_run(write(tmp_path, "a.json", json.dumps(body))).replay()
    assert (load.loop, load.concurrency) == ("closed", 2)
    assert workload.prompt_tokens.tolist() == [100, 200, 50]
    _, load = read_run(
        write(tmp_path, "b.json", json.dumps({**body, "max_concurrency": None, "request_rate": 4.0}))
    ).replay()
    assert (load.loop, load.rate_per_s) == ("open", 4.0)


def test_a_run_that_says_nothing_of_arrivals_is_not_replayed() -> None:
    one = np.ones(1, dtype=np.int64)
    with pytest.raises(InputError, match="cannot be replayed"):
        MeasuredRun("r", one, one, np.ones(1), np.ones(1)).replay()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.json", "{}", "--save-detailed"),
        ("a.json", json.dumps(bench(itls=[[0.1]])), "itls"),
        ("a.json", json.dumps(bench(ttfts=["x", 1, 2])), "not numbers"),
        ("a.json", json.dumps(bench(errors=["e", "e", "e"])), "no request"),
        ("a.csv", "", "no requests"),
        ("a.csv", "arrival_s,output_tokens,e2e_ms\n0,1,1\n", "prompt_tokens"),
        ("a.csv", "prompt_tokens,output_tokens,ttft_ms\n1,1,1\n", "e2e"),
        ("a.csv", "prompt_tokens,output_tokens,e2e_ms\n1,1,1\n1,one,1\n", "a.csv:3"),
        ("a.jsonl", '{"isl": 1, "osl": 1, "e2e": 1}\n{"isl": 1\n', "a.jsonl:2"),
        ("a.jsonl", '{"isl": 1, "osl": 1, "ttft": 1, "itls": 3}\n{"isl": 1}\n', "list of numbers"),
    ],
)
def test_a_bad_log_is_one_line_that_names_the_place(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(InputError) as e:
        read_run(write(tmp_path, name, text))
    assert says in str(e.value)
    assert "\n" not in str(e.value)


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        read_run(tmp_path / "nowhere.csv")
