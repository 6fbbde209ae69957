"""What a plan says of its own setup: only what holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.build import build
from experiments.inputs import open_profile
from experiments.settings import settings


@pytest.fixture
def csv(tmp_path: Path) -> str:
    rows = "".join(f"{i}.5,{100 * (i + 1)},5\n" for i in range(6))
    (tmp_path / "w.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    return f"workload={tmp_path / 'w.csv'}"


def _notes(*words: str) -> list[str]:
    return list(build(["experiment=bench", "evictor=lru", "seeds=1", "load.loop=closed", *words])[0].notes)


def _of(notes: list[str], text: str) -> list[str]:
    return [n for n in notes if text in n]


def test_workflows_left_out_are_counted_only_where_there_are_any(csv: str) -> None:
    assert _of(_notes(csv, "load.request_tokens_max=10000"), "left out") == []
    assert _of(_notes(csv, "load.request_tokens_max=405"), "left out") == [
        "2 of 6 workflows of w.csv are left out: they have a request of more than 405 tokens (load.request_tokens_max)."
    ]


def test_a_closed_loop_wider_than_its_workload_is_warned_about(csv: str) -> None:
    quiet = [("load.concurrency=6",), ("load.concurrency=4,6",), ("load.concurrency=9", "load.workflows=9")]
    assert [_of(_notes(csv, *words), "Only") for words in quiet] == [[], [], []]
    open_loop = build([csv, "experiment=bench", "seeds=1", "load.loop=open", "load.concurrency=9"])[0].notes
    assert _of(list(open_loop), "Only") == []
    (one,) = _of(_notes(csv, "load.concurrency=9"), "Only")
    assert one.startswith(
        "Only 6 workflows of w.csv are run, fewer than load.concurrency=9: all start at once"
    )
    assert "equal" not in one


def test_points_of_a_sweep_beyond_the_workload_are_called_equal(csv: str) -> None:
    (line,) = _of(_notes(csv, "load.concurrency=2,6,9,12"), "Only")
    assert "fewer than load.concurrency=9, 12:" in line
    assert line.endswith("Points with load.concurrency=6, 9, 12 are therefore equal.")
    (left,) = _of(_notes(csv, "load.request_tokens_max=405", "load.concurrency=6"), "Only")
    assert left.startswith("Only 4 workflows")


def test_a_sequence_longer_than_the_model_assumes_rope_scaling(csv: str) -> None:
    assert _of(_notes(csv, "model=Qwen3-14B", "engine.max_model_len=131072"), "rope") == [
        "engine.max_model_len=131,072 is longer than the model's 40,960 (Qwen3-14B): assumes rope scaling."
    ]
    for value in ("40960", "null"):
        assert _of(_notes(csv, "model=Qwen3-14B", f"engine.max_model_len={value}"), "rope") == []


def test_a_known_gpu_without_a_profile_is_priced_by_a_roofline_in_the_profiles_precision() -> None:
    for precision in ("bf16", "fp8"):
        named = {"profile": f"H200x1--Qwen3-14B--{precision}--vllm", "gpu": "L40S"}
        found = open_profile(settings(named)).identity
        assert (found["gpu"], found["model"], found["precision"]) == ("L40S", "Qwen3-14B", precision)
        assert found["timing"] == "roofline"
