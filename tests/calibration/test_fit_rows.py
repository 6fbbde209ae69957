"""Laws of the row format: what is written is read, what is wrong is named with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibration.rows import StepRows, concatenate, from_frame, read_rows, write_rows
from traces.errors import InputError

TABLE = pd.DataFrame(
    {
        "kind": ["decode", "prefill", "mixed", "verify", "idle"],
        "batch": [8, 2, 3, 4, 0],
        "new_tokens": [1, 100, 50, 5, 0],
        "context_tokens": [1000, 0, 200, 300, 0],
        "prefix_tokens": [0, 40, 10, 0, 0],
        "time_ns": [1, 2, 3, 4, 5],
        "scope": ["kernel", "kernel", "engine", "kernel", "client"],
    }
)


def test_counts_of_each_kind_are_what_a_step_processes() -> None:
    rows = from_frame(TABLE, "t")
    assert rows.tokens.tolist() == [8, 200, 53, 20, 0]
    assert rows.seqs.tolist() == [8, 2, 4, 4, 0]
    assert rows.context.tolist() == [8000, 0, 600, 1200, 0]
    assert rows.pairs.tolist() == [0, 2 * (100 * 180 // 2), 50 * 70 // 2, 0, 0]


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet"])
def test_rows_round_trip(tmp_path: Path, name: str) -> None:
    rows = from_frame(TABLE, "t")
    write_rows(rows, tmp_path / name)
    back = read_rows(tmp_path / name)
    for field in StepRows.__dataclass_fields__:
        assert getattr(back, field).tolist() == getattr(rows, field).tolist()
    assert len(concatenate([rows, back.where(np.array([0, 2]))])) == 7


@pytest.mark.parametrize(
    ("column", "line", "value", "message"),
    [
        ("kind", 1, "prefil", "t:3: field 'kind': unknown kind 'prefil'; did you mean 'prefill'?"),
        ("scope", 0, "cpu", "t:2: field 'scope': unknown scope 'cpu'"),
        ("time_ns", 2, 0, "t:4: field 'time_ns': got 0, expected at least 1"),
        ("batch", 3, -1, "t:5: field 'batch': got -1, expected a whole number of at least 0"),
        ("context_tokens", 0, 1.5, "t:2: field 'context_tokens': got 1.5, expected a whole number"),
        ("new_tokens", 0, 2, "t:2: field 'new_tokens': got 2, expected 1 in a decode step"),
        ("scope", 4, "kernel", "t:6: field 'scope': an idle row is of scope engine or client"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(column: str, line: int, value: object, message: str) -> None:
    bad = TABLE.astype({column: object})
    bad.loc[line, column] = value
    with pytest.raises(InputError) as e:
        from_frame(bad, "t")
    assert str(e.value).startswith(message)


def test_missing_columns_files_and_empty_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^t:1: field 'batch': missing column; a table of steps has kind, batch"
    ):
        from_frame(TABLE.drop(columns="batch"), "t")
    with pytest.raises(InputError, match=r"^t: no rows$"):
        from_frame(TABLE.iloc[:0], "t")
    with pytest.raises(InputError, match=r"No such file"):
        read_rows(tmp_path / "none.csv")
    (tmp_path / "bad.parquet").write_bytes(b"not parquet")
    with pytest.raises(InputError, match=r"bad\.parquet: not a table of steps"):
        read_rows(tmp_path / "bad.parquet")
