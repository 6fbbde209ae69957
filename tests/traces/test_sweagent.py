"""Laws of the SWE-agent importer, on trajectories written here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import formats, io_sweagent
from traces._team import PARTS
from traces.errors import InputError
from traces.io_sweagent import SUITE_MS, quantile_ns, role_of
from traces.schema import StageKind, Workload

ACTIONS = ("open a.py", "edit 3:9\nx", "python a.py", "edit 4:4\ny", "pytest", "submit")


def trajectory(actions: Sequence[str] = ACTIONS, system: str = "s" * 400, **fields: Any) -> dict[str, Any]:
    history = [{"role": "system", "content": system}, {"role": "user", "content": "i" * 200}]
    for k, action in enumerate(actions):
        history.append({"role": "assistant", "content": f"{k}" * (40 + k), "action": action})
        if k + 1 < len(actions):
            history.append({"role": "user", "content": "o" * (80 + 40 * k)})
    sent = sum(
        sum(len(m["content"]) for m in history[:i]) for i, m in enumerate(history) if m["role"] == "assistant"
    )
    info = {"model_stats": {"tokens_sent": max(sent // 4, 1)}}
    return {
        "environment": "e",
        "trajectory": [{"observation": ""}],
        "history": history,
        "info": info,
    } | fields


def write(folder: Path, name: str = "run/a__b-1", **given: Any) -> Path:
    path = folder / f"{name}.traj"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(trajectory(**given)))
    return path


def llm(w: Workload, column: str) -> list[int]:
    return [int(x) for x in getattr(w, column)[w.stage_kind == StageKind.LLM]]


def test_roles_follow_the_commands_in_their_recorded_order(tmp_path: Path) -> None:
    w = io_sweagent.read(write(tmp_path))
    roles = [w.agents[a] for a in llm(w, "stage_agent")]
    assert roles == ["navigator", "editor", "tester", "editor", "tester", "submitter"]
    assert [w.agents[a] for a in w.stage_agent[w.stage_kind == StageKind.TOOL]] == ["shell"] * 5
    assert w.workflow_names == ("run/a__b-1",)
    assert role_of("") == "tester"


def test_prompts_add_up_to_the_tokens_billed(tmp_path: Path) -> None:
    w = io_sweagent.read(write(tmp_path), context="own")
    billed = trajectory()["info"]["model_stats"]["tokens_sent"]
    assert abs(sum(llm(w, "prompt_tokens")) - billed) <= 0.02 * billed


def test_a_prompt_is_the_transcript_so_far(tmp_path: Path) -> None:
    w = io_sweagent.read(write(tmp_path))
    prompts, outputs = llm(w, "prompt_tokens"), llm(w, "output_tokens")
    assert prompts == sorted(prompts)
    for k in range(5):
        assert prompts[k + 1] - prompts[k] == outputs[k] + (80 + 40 * k) // 4


def shared_blocks(w: Workload, a: int, b: int) -> int:
    mine = set(w.prefix.path(int(w.sequence_segment[a])))
    both = [s for s in w.prefix.path(int(w.prompt_segment[b])) if s in mine]
    return int(w.prefix.end_tokens[both[-1]]) if both else 0


def test_own_prompts_continue_a_role_and_shared_ones_continue_everybody(tmp_path: Path) -> None:
    path = write(tmp_path)
    own, shared = (io_sweagent.read(path, context=c, block_tokens=1) for c in ("own", "shared"))
    calls = np.flatnonzero(own.stage_kind == StageKind.LLM).tolist()
    first_edit, second_edit, first_test = calls[1], calls[3], calls[2]
    assert shared_blocks(own, first_edit, first_test) == 0
    assert shared_blocks(own, first_edit, second_edit) == own.prompt_tokens[first_edit] + 10  # and its output
    assert shared_blocks(shared, first_edit, first_test) >= shared.prompt_tokens[first_edit] - 64


def test_parts_split_by_issue_and_cover_everything(tmp_path: Path) -> None:
    for run in ("r1", "r2"):
        for k in range(30):
            write(tmp_path, f"{run}/a__b-{k}")
    names = {p: set(io_sweagent.read(tmp_path, part=p).workflow_names) for p in PARTS}
    assert names["train"] | names["test"] == names["all"]
    issues = [{n.split("/")[1] for n in names[p]} for p in ("train", "test")]
    assert not issues[0] & issues[1]
    assert min(map(len, issues)) > 3


def test_the_seed_moves_tool_times_and_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path)
    a, b = io_sweagent.read(path), io_sweagent.read(path, seed=1)
    assert a.prompt_tokens.tolist() == b.prompt_tokens.tolist()
    assert a.stage_duration_ns.tolist() != b.stage_duration_ns.tolist()
    times = [quantile_ns(SUITE_MS, k * (2**64 // 1000)) for k in range(1000)]
    assert times == sorted(times)
    assert abs(times[500] - 320_000_000) < 1000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"history": [{"role": "user", "content": ""}]},
            "field 'history[0].role': got 'user', expected 'system'",
        ),
        ({"history": 3}, "field 'history': got a whole number, expected a list"),
        ({"info": {}}, "field 'info.model_stats': missing"),
        (
            {"info": {"model_stats": {"tokens_sent": 0}}},
            "field 'info.model_stats.tokens_sent': got 0, allowed",
        ),
    ],
)
def test_malformed_trajectories_name_file_and_field(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "x.traj"
    path.write_text(json.dumps(trajectory() | change))
    with pytest.raises(InputError, match=message.replace("[", r"\[").replace("]", r"\]")):
        io_sweagent.read(path)


def test_options_out_of_range_say_what_is_allowed(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(InputError, match="unknown context 'owm'; did you mean 'own'"):
        io_sweagent.read(path, context="owm")
    with pytest.raises(InputError, match="unknown part 'tests'; did you mean 'test'"):
        io_sweagent.read(path, part="tests")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="the folder holds no file"):
        io_sweagent.read(tmp_path / "empty")


def test_a_folder_and_a_file_are_recognised_by_their_content(tmp_path: Path) -> None:
    assert formats.sniff(write(tmp_path)) == formats.sniff(tmp_path) == "sweagent"
