"""Rows of steps: who decodes, what is prefilled, what was drafted and accepted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from live.recorder import TableRecorder
from live.vllm.steps import Pool, StepRecords

POOL = Pool(active=3, cached=4)


def request(prompt: int, computed: int, output: int) -> Any:
    return SimpleNamespace(num_computed_tokens=computed, num_tokens=prompt + output, num_output_tokens=output)


def rows(tables: TableRecorder) -> list[dict[str, int]]:
    return tables.tables()["steps"].to_pylist()  # type: ignore[no-any-return]


def test_a_step_counts_prefills_and_decodes_apart() -> None:
    tables = TableRecorder()
    steps = StepRecords(tables)
    open_ = {"a": request(10, 0, 0), "b": request(8, 9, 2)}
    steps.opened({"a": 6, "b": 1}, {}, open_, 5, POOL, 100)
    open_["b"].num_output_tokens = 3
    steps.closed(open_, 130)
    (row,) = rows(tables)
    assert (row["decode_seqs"], row["prefill_seqs"], row["prefill_tokens"]) == (1, 1, 6)
    assert row["context_tokens"] == 10, "what b had computed, and the token it writes"
    assert (row["waiting"], row["kv_blocks_active"], row["kv_blocks_cached"]) == (5, 3, 4)
    assert (row["start_ns"], row["duration_ns"]) == (100, 30)


def test_who_goes_on_got_a_token_from_the_step_just_before() -> None:
    tables = TableRecorder()
    steps = StepRecords(tables)
    open_ = {"a": request(10, 0, 0), "b": request(8, 9, 2)}
    steps.opened({"a": 10, "b": 1}, {}, open_, 0, POOL, 0)
    steps.closed(open_, 1)
    open_ = {"a": request(10, 10, 1), "b": request(8, 10, 3), "c": request(5, 6, 2)}
    steps.opened({"a": 1, "b": 1, "c": 1}, {}, open_, 0, POOL, 2)
    steps.closed(open_, 3)
    assert [row["continuing_seqs"] for row in rows(tables)] == [0, 2]


def test_what_was_accepted_is_what_there_is_more_of() -> None:
    tables = TableRecorder()
    steps = StepRecords(tables)
    open_ = {"a": request(10, 11, 2), "b": request(8, 9, 2)}
    steps.opened({"a": 4, "b": 3}, {"a": 3, "b": 2}, open_, 0, POOL, 0)
    open_["a"].num_output_tokens = 5  # two of three, and its own
    assert steps.ended("b", 3) == (2, 0)
    del open_["b"]
    steps.closed(open_, 1)
    (row,) = rows(tables)
    assert (row["drafted_tokens"], row["accepted_tokens"]) == (5, 2)
    assert steps.ended("a", 5) == (3, 2)
    assert steps.ended("a", 5) == (0, 0)


def test_steps_that_overlap_close_in_the_order_they_opened() -> None:
    tables = TableRecorder()
    steps = StepRecords(tables)
    open_ = {"a": request(10, 11, 2)}
    steps.opened({"a": 1}, {}, open_, 0, POOL, 0)
    steps.opened({"a": 1}, {}, open_, 0, POOL, 10)
    steps.closed(open_, 15)
    steps.flush(open_, 40)
    assert [(r["start_ns"], r["duration_ns"]) for r in rows(tables)] == [(0, 15), (10, 30)]
