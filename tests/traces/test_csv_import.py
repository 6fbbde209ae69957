from __future__ import annotations

import gzip
from decimal import Decimal
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from traces import formats, io_csv
from traces.csv_rows import REQUIRED, parse_rows
from traces.schema import StageKind, Workload

HEADER = "arrival_s,prompt_tokens,output_tokens\n"


def written(tmp_path: Path, text: str, name: str = "a.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 9), st.integers(1, 2**31 - 1)), min_size=1))
@settings(max_examples=60, deadline=None)
def test_decimal_seconds_are_exact_nanoseconds(rows: list[tuple[int, int, int]]) -> None:
    cells = []
    for time_ns, decimals, tokens in rows:
        text = str(Decimal(time_ns) / 10**9) if decimals == 9 else f"{time_ns // 10**9}.{'5' * decimals}"
        cells.append(f"{text},{tokens},{tokens}\n".replace("E+", "e"))
    body = "".join(cells).encode()
    fast = io_csv._fast_rows(body, list(REQUIRED))
    slow = parse_rows(HEADER.encode() + body, Path("x.csv"), list(REQUIRED))
    expected = [int(Decimal(c.split(",")[0]).scaleb(9)) for c in cells]
    assert slow.arrival_ns.tolist() == expected
    if fast is not None:
        assert fast.arrival_ns.tolist() == expected
        assert fast.prompt_tokens.tolist() == slow.prompt_tokens.tolist()


@given(st.text(alphabet="0123456789.,\n\r", max_size=60))
@settings(max_examples=300, deadline=None)
def test_the_fast_path_never_reads_what_the_checked_path_refuses(body: str) -> None:
    fast = io_csv._fast_rows(body.encode(), list(REQUIRED))
    if fast is not None:
        slow = parse_rows(HEADER.encode() + body.encode(), Path("x.csv"), list(REQUIRED))
        for a, b in ((fast.arrival_ns, slow.arrival_ns), (fast.output_tokens, slow.output_tokens)):
            assert a.tolist() == b.tolist()


def test_the_plain_case_takes_the_fast_path() -> None:
    rows = io_csv._fast_rows(b"0.25,3,4\r\n\n1.,5,6", list(REQUIRED))
    assert rows is not None
    assert rows.arrival_ns.tolist() == [250_000_000, 1_000_000_000]


def test_arrivals_finer_than_a_nanosecond_are_rounded_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER + "0.00000000149,1,1\n1e-9,2,2\n0.10000000000000,3,3\n")
    workload = io_csv.read(path)
    assert workload.workflow_arrival_ns is not None
    assert workload.workflow_arrival_ns.tolist() == [1, 1, 100_000_000]
    assert workload.provenance["rounded"] == {"arrival_s finer than 1 ns": 1}


def test_prompts_of_no_tokens_are_counted_not_dropped_in_silence(tmp_path: Path) -> None:
    workload = io_csv.read(written(tmp_path, HEADER + "1,0,5\n2,7,0\n"))
    assert workload.n_requests == 1
    assert workload.output_tokens.tolist() == [0]
    assert workload.provenance["not_imported"] == {"prompt of 0 tokens": 1}
    assert workload.provenance["records"] == 2


def test_columns_may_come_in_any_order(tmp_path: Path) -> None:
    workload = io_csv.read(written(tmp_path, "\ufeffoutput_tokens, arrival_s,prompt_tokens\n7,1.5,9\n"))
    assert (workload.prompt_tokens[0], workload.output_tokens[0]) == (9, 7)


def test_gzip_reads_like_plain(tmp_path: Path) -> None:
    text = HEADER + "1,2,3\n"
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert formats.load(packed).digest() == formats.load(written(tmp_path, text)).digest()


def chain(workload: Workload) -> list[list[int]]:
    p = workload.parent_ptr
    return [workload.parent_idx[p[s] : p[s + 1]].tolist() for s in range(workload.n_stages)]


def test_rows_of_a_workflow_keep_their_times_and_their_order(tmp_path: Path) -> None:
    text = "arrival_s,prompt_tokens,output_tokens,workflow\n1,10,1,a\n2,20,2,b\n4,30,3,a\n"
    workload = io_csv.read(written(tmp_path, text))
    assert workload.workflow_names == ("a", "b")
    assert workload.stage_kind.tolist() == [StageKind.LLM, StageKind.WAIT, StageKind.LLM, StageKind.LLM]
    assert workload.stage_duration_ns.tolist() == [0, 3_000_000_000, 0, 0]
    # the second row of `a` waits for the first, and for its own arrival counted from the workflow's
    assert chain(workload) == [[], [], [0, 1], []]
    assert workload.workflow_arrival_ns is not None
    assert workload.workflow_arrival_ns.tolist() == [1_000_000_000, 2_000_000_000]


def test_sessions_of_a_workflow_run_side_by_side(tmp_path: Path) -> None:
    text = "arrival_s,prompt_tokens,output_tokens,workflow,session\n0,1,1,w,x\n0,2,1,w,y\n0,3,1,w,x\n"
    workload = io_csv.read(written(tmp_path, text))
    assert workload.n_workflows == 1
    assert chain(workload) == [[], [], [0]]
    alone = io_csv.read(
        written(tmp_path, "arrival_s,prompt_tokens,output_tokens,session\n0,1,1,x\n0,2,1,y\n")
    )
    assert alone.workflow_names == ("x", "y")


def test_large_files_build_the_same_columns_as_rows(tmp_path: Path) -> None:
    n = 3000
    rows = "".join(f"{i / 8},{i % 50 + 1},{i % 7}\n" for i in range(n))
    workload = io_csv.read(written(tmp_path, HEADER + rows))
    assert workload.workflow_arrival_ns is not None
    assert np.array_equal(workload.workflow_arrival_ns, np.arange(n) * 125_000_000)
    assert np.array_equal(workload.prompt_tokens, np.arange(n) % 50 + 1)
    assert workload.errors() == []
