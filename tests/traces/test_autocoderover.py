"""Laws of the AutoCodeRover importer, on logs written here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from traces import formats, io_autocoderover
from traces._acr_calls import read_calls
from traces.errors import InputError
from traces.schema import StageKind

LOG = """\
2024-04-06 13:48:23 ==== Running task a__b-1
2024-04-06 13:49:57 Model API request cost info: input_tokens=472, output_tokens=335, cost=0.01
2024-04-06 13:49:57 Trying to select search APIs in json. Try 1 of 5.
2024-04-06 13:49:59 Model API request cost info: input_tokens=655, output_tokens=52, cost=0.01
  a line of a message, without a stamp
2024-04-06 13:50:01 Result of dispatch_intent: ('Found 1
2024-04-06 13:50:02 Result of dispatch_intent: ('Found 2
2024-04-06 13:50:10 Model API request cost info: input_tokens=975, output_tokens=423, cost=0.02
2024-04-06 13:50:57 Trying to write a patch. Try 1 of 3.
2024-04-06 13:51:13 Model API request cost info: input_tokens=3498, output_tokens=585, cost=0.05
2024-04-06 13:51:14 Trying to write a patch. Try 2 of 3.
2024-04-06 13:51:33 Model API request cost info: input_tokens=4200, output_tokens=400, cost=0.05
"""


def write(folder: Path, text: str = LOG, task: str = "run/a__b-1") -> Path:
    path = folder / task / "info.timestamps.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_calls_have_the_callers_tokens_and_tool_times_of_the_log(tmp_path: Path) -> None:
    calls = read_calls(write(tmp_path))
    assert [(c.agent, c.input_tokens, c.output_tokens, c.tool_s) for c in calls] == [
        ("searcher", 472, 335, 0), ("proxy", 655, 52, 3), ("searcher", 975, 423, 0), ("patcher", 3498, 585, 0),
        ("patcher", 4200, 400, 0),
    ]  # fmt: skip


def test_searcher_and_patcher_continue_their_own_conversations(tmp_path: Path) -> None:
    w = io_autocoderover.read(write(tmp_path), block_tokens=1)
    calls = np.flatnonzero(w.stage_kind == StageKind.LLM).tolist()
    assert w.prompt_tokens[calls].tolist() == [472, 655, 975, 3498, 4200]
    assert w.output_tokens[calls].tolist() == [335, 52, 423, 585, 400]
    for a, b in ((calls[0], calls[2]), (calls[3], calls[4])):
        assert int(w.sequence_segment[a]) in w.prefix.path(int(w.prompt_segment[b]))
    assert w.stage_duration_ns[w.stage_kind == StageKind.TOOL].tolist() == [3_000_000_000]
    assert w.provenance["records"]["calls_shorter_than_their_conversation_so_far"] == 0


def test_system_prompts_are_shared_by_tasks_at_their_share_of_the_bytes(tmp_path: Path) -> None:
    for task in ("run/a__b-1", "run/a__b-2"):
        path = write(tmp_path, task=task)
        messages = [("system", 100), ("user", 300), ("assistant", 50)]
        (path.parent / "conversation_round_3.json").write_text(
            json.dumps([{"role": r, "content": "x" * n} for r, n in messages])
        )
    w = io_autocoderover.read(tmp_path, block_tokens=1)
    first, second = (int(np.flatnonzero(w.stage_workflow == k)[0]) for k in range(2))
    both = set(w.prefix.path(int(w.prompt_segment[first]))) & set(
        w.prefix.path(int(w.prompt_segment[second]))
    )
    assert max(int(w.prefix.end_tokens[s]) for s in both) == 472 * 100 // 400


def test_a_prompt_shorter_than_its_conversation_starts_anew_and_is_counted(tmp_path: Path) -> None:
    w = io_autocoderover.read(write(tmp_path, LOG.replace("input_tokens=4200", "input_tokens=20")))
    assert w.errors() == []
    assert w.provenance["records"]["calls_shorter_than_their_conversation_so_far"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no task with a call in it"),
        ("2024-04-06 13:99:57 Model", "info.timestamps.txt:1: '2024-04-06 13:99:57' is no date and time"),
        (
            "2024-04-06 13:49:57 Model API request cost info: input_tokens=0, output_tokens=1",
            "info.timestamps.txt:1: field 'input_tokens': got 0, allowed: 1",
        ),
    ],
)
def test_malformed_logs_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        io_autocoderover.read(write(tmp_path, text))
    assert message in str(error.value)


def test_a_folder_and_a_log_are_recognised_by_their_content(tmp_path: Path) -> None:
    assert formats.sniff(write(tmp_path)) == formats.sniff(tmp_path) == "autocoderover"
