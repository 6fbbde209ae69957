from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from traces import formats
from traces.errors import InputError
from traces.schema import StageKind, Workload


def load(tmp_path: Path, *records: dict[str, object], **options: object) -> Workload:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return formats.load(path, **options)


def parents(workload: Workload) -> list[list[int]]:
    p = workload.parent_ptr
    return [workload.parent_idx[p[s] : p[s + 1]].tolist() for s in range(workload.n_stages)]


def shared_tokens(workload: Workload, a: int, b: int) -> int:
    """Return how many leading prompt tokens two stages have in common."""
    both = set(workload.prefix.path(int(workload.prompt_segment[a])))
    both &= set(workload.prefix.path(int(workload.prompt_segment[b])))
    end = max((int(workload.prefix.end_tokens[s]) for s in both), default=0)
    return min(end, int(workload.prompt_shared_tokens[a]), int(workload.prompt_shared_tokens[b]))


def test_equal_leading_hashes_are_a_shared_prefix(tmp_path: Path) -> None:
    w = load(
        tmp_path,
        {"timestamp": 0, "input_length": 1500, "output_length": 5, "hash_ids": [7, 8, 9]},
        {"timestamp": 3000, "input_length": 1200, "output_length": 6, "hash_ids": [7, 8, 2**64 - 1]},
        {"timestamp": 3000.25, "input_length": 700, "output_length": 0, "hash_ids": [8, 9]},
    )
    assert w.hash_block_tokens == 512
    assert shared_tokens(w, 0, 1) == 1024
    assert shared_tokens(w, 0, 2) == 0  # equal hashes at another depth are another prefix
    assert w.prompt_shared_tokens.tolist() == [1500, 1200, 700]
    assert w.workflow_arrival_ns is not None
    assert w.workflow_arrival_ns.tolist() == [0, 3_000_000_000, 3_000_250_000]


def test_timestamps_hashes_and_output_lengths_are_optional(tmp_path: Path) -> None:
    w = load(tmp_path, {"input_length": 9}, {"input_length": 8, "output_length": 3})
    assert w.workflow_arrival_ns is None
    assert len(w.prefix) == 0
    assert w.output_tokens.tolist() == [0, 3]
    assert w.provenance["assumed"] == {"output_length missing, taken as 0": 1}
    stated = load(tmp_path, {"input_length": 9}, missing_output_tokens=32)
    assert stated.output_tokens.tolist() == [32]


def test_the_stated_block_size_is_what_a_hash_covers(tmp_path: Path) -> None:
    w = load(tmp_path, {"input_length": 40, "hash_ids": [1, 2, 3]}, block_tokens="16")
    assert w.hash_block_tokens == 16
    assert w.prompt_shared_tokens.tolist() == [40]
    short = load(tmp_path, {"input_length": 40, "hash_ids": [1, 2]}, block_tokens=16)
    assert short.prompt_shared_tokens.tolist() == [32]  # full blocks only: the tail is private


def test_fields_that_decide_nothing_are_counted(tmp_path: Path) -> None:
    w = load(tmp_path, {"input_length": 4, "priority": 3}, {"input_length": 0})
    assert w.provenance["fields_not_used"] == {"priority": 1}
    assert w.provenance["not_imported"] == {"prompt of 0 tokens": 1}


def agentic(name: str, session: str, *wait_for: str, **more: object) -> dict[str, object]:
    base = {
        "request_id": name,
        "session_id": session,
        "timestamp": 2.5,
        "input_length": 100,
        "output_length": 9,
    }
    return {**base, "hash_ids": [1, 2], **({"wait_for": list(wait_for)} if wait_for else {}), **more}


def test_dependencies_become_parents_and_waits_become_stages(tmp_path: Path) -> None:
    w = load(
        tmp_path,
        agentic("a", "s"),
        agentic("b", "s", "a", tool_wait_ms=507.0, delay=0.0),
        agentic("c", "s", "a", delay=3),
        agentic("d", "s", "b", "c", "b"),
    )
    assert w.provenance["variant"] == "agentic"
    assert w.hash_block_tokens == 64
    assert w.workflow_names == ("s",)
    kinds = [StageKind(k).name for k in w.stage_kind]
    assert kinds == ["LLM", "TOOL", "LLM", "WAIT", "LLM", "LLM"]
    assert w.stage_duration_ns[[1, 3]].tolist() == [507_000_000, 3_000_000]
    assert parents(w) == [[], [0], [1], [0], [3], [2, 4]]
    assert w.workflow_arrival_ns is not None
    assert w.workflow_arrival_ns.tolist() == [2_500_000]


def test_a_parent_may_come_later_in_the_file(tmp_path: Path) -> None:
    w = load(tmp_path, agentic("b", "s", "a"), agentic("a", "s", input_length=77))
    assert w.prompt_tokens.tolist() == [77, 100]
    assert parents(w) == [[], [0]]


def test_sessions_that_wait_for_each_other_are_one_workflow(tmp_path: Path) -> None:
    w = load(tmp_path, agentic("a", "main"), agentic("x", "other"), agentic("b", "sub", "a"))
    assert w.n_workflows == 2
    assert w.stage_workflow.tolist() == [0, 0, 1]


def test_a_later_root_waits_for_its_own_time(tmp_path: Path) -> None:
    w = load(
        tmp_path, agentic("a", "s"), agentic("b", "s", timestamp=12.5), agentic("c", "s", "a", timestamp=9)
    )
    assert parents(w) == [[], [], [1], [0]]
    assert w.stage_duration_ns[1] == 10_000_000
    assert w.provenance["fields_not_used"] == {"timestamp of a request that waits for others": 1}


def test_plain_sessions_are_chains(tmp_path: Path) -> None:
    turn = {"session_id": "s", "input_length": 5, "output_length": 1}
    w = load(
        tmp_path, {**turn, "timestamp": 0}, {**turn, "delay": 20}, {**turn, "session_id": "t", "timestamp": 1}
    )
    assert w.workflow_names == ("s", "t")
    assert parents(w) == [[], [0], [1], []]
    assert w.stage_duration_ns[1] == 20_000_000


def test_a_long_chain_needs_no_recursion(tmp_path: Path) -> None:
    n = 3000
    chain = [agentic("r0", "s")] + [agentic(f"r{i}", "s", f"r{i - 1}") for i in range(1, n)]
    w = load(tmp_path, *chain)
    assert w.n_requests == n
    assert np.array_equal(w.parent_idx, np.arange(n - 1))


def test_long_cycles_are_shown_shortened(tmp_path: Path) -> None:
    ring = [agentic(f"r{i}", "s", f"r{(i + 1) % 9}") for i in range(9)]
    with pytest.raises(InputError, match=r":1: .* r0 > r1 > r2 > \.\.\. > r8 > r0$"):
        load(tmp_path, *ring)
