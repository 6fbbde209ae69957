from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from traces import formats, lengths, store, synthetic
from traces.arrivals import poisson
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.schema import StageKind, Workload


def rich() -> Workload:
    """Make a workload that uses every column."""
    b = WorkloadBuilder("rich ünd", 16)
    for w in range(3):
        b.workflow(f"w{w}", w * 10**17)
        units = np.array([1, 2**64 - 1, 3 + w], np.uint64)
        first = b.llm(
            40, 2, agent="planner", prompt_units=units[:2], output_ids=np.array([w, 2**32 - 1], np.uint32),
            output_blocks=["", "code"], prompt_ids=np.arange(40, dtype=np.uint32),
        )  # fmt: skip
        tool = b.delay(StageKind.TOOL, 10**12, parents=[first], agent="search")
        prompt = np.concatenate([np.arange(40), [w, 2**32 - 1], np.arange(6)]).astype(np.uint32)
        b.llm(48, 0, parents=[first, tool], prompt_units=units, prompt_ids=prompt)
    return b.build({"source": "made up", "not_imported": {"x": 2}})


def sessions() -> Workload:
    return synthetic.sessions(
        "s",
        poisson(30, 1.0, 3),
        turns=lengths.Fixed(4),
        user=lengths.Fixed(50),
        output=lengths.Fixed(20),
        think_ms=lengths.Fixed(7),
        system_tokens=100,
    )


@pytest.mark.parametrize("make", [rich, sessions], ids=["rich", "sessions"])
def test_what_is_saved_is_what_is_opened(make: object, tmp_path: Path) -> None:
    workload: Workload = make()  # type: ignore[operator]
    path = tmp_path / "a.workload"
    store.save(workload, path)
    opened = formats.load(path)
    assert opened.digest() == workload.digest()
    assert opened.provenance == workload.provenance
    for field in fields(Workload):
        a, b = getattr(workload, field.name), getattr(opened, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, field.name
    assert workload.name == opened.name


def test_the_same_workload_gives_the_same_bytes(tmp_path: Path) -> None:
    store.save(rich(), tmp_path / "a.workload")
    store.save(store.open(tmp_path / "a.workload"), tmp_path / "b.workload")
    assert (tmp_path / "a.workload").read_bytes() == (tmp_path / "b.workload").read_bytes()


def test_columns_are_narrow_on_disk(tmp_path: Path) -> None:
    n = 20_000
    workload = synthetic.requests("n", poisson(n, 4.0, 0), lengths.Fixed(900), lengths.Fixed(9), 0)
    path = tmp_path / "n.workload"
    store.save(workload, path)
    gaps = 4 * n  # arrivals of random gaps of 30 bits cannot be narrower than about 4 bytes each
    assert path.stat().st_size < 1.1 * gaps


def test_an_unsound_workload_is_not_written(tmp_path: Path) -> None:
    workload = rich()
    workload.prompt_tokens[0] = 0
    with pytest.raises(InputError, match="at least 1"):
        store.save(workload, tmp_path / "a.workload")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.workload"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(InputError, match="cannot write: No space left on device"):
        store.save(rich(), path)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


def test_an_oversized_file_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.workload"
    store.save(rich(), path)
    monkeypatch.setattr(store, "MAX_FILE_BYTES", 100)
    with pytest.raises(InputError, match="content is larger"):
        store.open(path)
