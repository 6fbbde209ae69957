from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_log import MS, two_requests, write_run

from traces.errors import InputError
from traces.runlog import from_tables, read_run
from traces.tables import SCHEMAS


def test_files_and_memory_hold_the_same_log(tmp_path: Path) -> None:
    tables = two_requests()
    memory, files = from_tables(tables), read_run(write_run(tmp_path, tables))
    for name, schema in SCHEMAS.items():
        assert files.rows(name) == memory.rows(name)
        for field in schema:
            if pa.types.is_dictionary(field.type):
                continue
            assert np.array_equal(files.column(name, field.name), memory.column(name, field.name)), field.name
    assert np.array_equal(files.select("decisions", "action", "gap"), [False, True, False])
    assert files.table("requests").equals(memory.table("requests"))


def test_a_log_read_in_slices_is_the_log(tmp_path: Path) -> None:
    log = read_run(write_run(tmp_path, two_requests()))
    slices = list(log.batches("steps", ("duration_ns", "start_ns"), rows=2))
    assert [len(s["start_ns"]) for s in slices] == [2, 2, 1]
    for column in ("start_ns", "duration_ns"):
        assert np.array_equal(np.concatenate([s[column] for s in slices]), log.column("steps", column))


def test_names_are_found_across_pieces_with_different_dictionaries() -> None:
    one = two_requests()["decisions"]
    other = one.slice(1, 2).combine_chunks()
    other = pa.table(
        [
            pa.chunked_array([c.chunk(0).dictionary_decode().dictionary_encode().cast(f.type)])
            if pa.types.is_dictionary(f.type)
            else c
            for f, c in zip(other.schema, other.columns, strict=True)
        ],
        schema=one.schema,
    )
    log = from_tables({"decisions": pa.concat_tables([one, other])})
    assert np.array_equal(log.select("decisions", "action", "gap"), [False, True, False, True, False])
    assert not log.select("decisions", "action", "nothing like it").any()
    assert log.token_gaps()[1].tolist() == [35 * MS, 35 * MS]


def test_columns_handed_out_cannot_change_the_log() -> None:
    column = from_tables(two_requests()).column("requests", "released_ns")
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1


def test_the_pool_size_comes_from_the_caller_or_the_log() -> None:
    tables = two_requests()
    assert from_tables(tables).kv_blocks is None
    meta = {**tables["steps"].schema.metadata, b"foreserve.kv_blocks": b"77"}
    tables["steps"] = tables["steps"].replace_schema_metadata(meta)
    assert from_tables(tables).kv_blocks == 77
    assert from_tables(tables, kv_blocks=5).kv_blocks == 5


def _missing(run: Path) -> None:
    (run / "steps.parquet").unlink()


def _cut_off(run: Path) -> None:
    path = run / "steps.parquet"
    path.write_bytes(path.read_bytes()[:-20])


def _other_version(run: Path) -> None:
    t = two_requests()["steps"].replace_schema_metadata({"foreserve.tables_version": "999"})
    pq.write_table(t, run / "steps.parquet")


def _foreign(run: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), run / "steps.parquet")


def _column_gone(run: Path) -> None:
    pq.write_table(two_requests()["steps"].drop_columns(["waiting"]), run / "steps.parquet")


def _wrong_type(run: Path) -> None:
    t = two_requests()["steps"]
    i = t.schema.get_field_index("waiting")
    field = pa.field("waiting", pa.float64(), nullable=False)
    pq.write_table(t.set_column(i, field, t.column(i).cast(pa.float64())), run / "steps.parquet")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_missing, "missing"),
        (_cut_off, "not a whole Parquet file"),
        (_other_version, "run log version 999, this program reads 2"),
        (_foreign, "no run log"),
        (_column_gone, "field 'waiting': missing column"),
        (_wrong_type, "field 'waiting': type double, expected int32"),
    ],
)
def test_a_damaged_run_is_refused_in_one_line(
    tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    damage(write_run(tmp_path, two_requests()))
    with pytest.raises(InputError) as caught:
        read_run(tmp_path)
    line = str(caught.value)
    assert says in line
    assert str(tmp_path / "steps.parquet") in line
    assert "\n" not in line


def test_pages_lost_inside_a_file_are_reported_when_read(tmp_path: Path) -> None:
    path = write_run(tmp_path, two_requests()) / "requests.parquet"
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    path.write_bytes(bytes(data))
    log = read_run(tmp_path)
    with pytest.raises(InputError, match=r"requests\.parquet: not a whole Parquet file"):
        log.table("requests")


def test_wrong_names_answer_with_the_nearest(tmp_path: Path) -> None:
    log = from_tables(two_requests())
    with pytest.raises(InputError, match="did you mean 'requests'"):
        log.rows("request")
    with pytest.raises(InputError, match="did you mean 'waiting'"):
        log.column("steps", "wating")
    with pytest.raises(InputError, match="holds names"):
        log.column("decisions", "action")
    with pytest.raises(InputError, match="no such run directory"):
        read_run(tmp_path / "nowhere")
