"""Laws of the importers of transcripts: outputs, prompts and blocks as token ids, on texts written here."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from traces import formats
from traces._token_ids import KeyedIds
from traces._tokenizer import Tokenizer
from traces.errors import InputError
from traces.schema import Workload

PIECE = re.compile(r"\s?[A-Za-z]+|.", re.DOTALL)


def encode(text: str) -> list[int]:
    return [crc32(p.encode()) % 50_000 for p in PIECE.findall(text)]


def spell(text: str, ids: Sequence[int]) -> list[str]:
    return PIECE.findall(text)


TOKENS = Tokenizer(encode, spell)


def load(path: Path, form: str | None = None, **options: object) -> Workload:
    return formats.load(path, form, tokenizer=TOKENS, block_tokens=4, **options)


def texts(w: Workload) -> list[tuple[str, int, int]]:
    """Return agent, prompt and output tokens of each call."""
    return [
        (w.agents[w.stage_agent[s]], int(w.prompt_tokens[s]), int(w.output_tokens[s]))
        for s in range(w.n_stages)
    ]


def marked(w: Workload, stage: int) -> str:
    """Return the block open after each output token of a stage, one digit each."""
    assert w.transcript is not None
    assert w.output_ptr is not None
    a, b = w.output_ptr[stage : stage + 2]
    return "".join(map(str, w.transcript.output_block[a:b]))


def prompt(w: Workload, stage: int) -> list[int]:
    assert w.transcript is not None
    assert w.output_ptr is not None
    assert w.output_ids is not None
    return w.transcript.prompt(stage, w.output_ptr, w.output_ids).tolist()


def sizes(*calls: tuple[str, Sequence[str], str]) -> list[tuple[str, int, int]]:
    return [(a, sum(len(encode(p)) for p in ps), len(encode(o))) for a, ps, o in calls]


def taubench(folder: Path) -> Path:
    call = {"function": {"name": "find", "arguments": '{"id": 7}'}, "id": "x", "type": "function"}
    traj = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hello there"},
        {"role": "assistant", "content": "who is it"},
        {"role": "user", "content": "me"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    path = folder / "shop.json"
    path.write_text(json.dumps([{"task_id": 4, "trial": 1, "traj": traj, "reward": 1.0, "info": {}}]))
    return path


def test_taubench_calls_are_assistant_messages_and_tool_calls_are_blocks(tmp_path: Path) -> None:
    w = load(taubench(tmp_path))
    assert w.workflow_names == ("shop/4/1",)
    written = '<tool_call>{"name": "find", "arguments": "{\\"id\\": 7}"}</tool_call>'
    assert texts(w) == sizes(
        ("taubench/agent", ["be kind", "hello there"], "who is it"),
        ("taubench/agent", ["be kind", "hello there", "who is it", "me"], written),
    )
    outer, inner = len(encode("<tool_call>")), len(encode(written)) - len(encode("<tool_call></tool_call>"))
    # Open from the end of the opening delimiter to the end of the closing one.
    close = len(encode("</tool_call>"))
    assert marked(w, 1) == "0" * (outer - 1) + "1" * (1 + inner + close - 1) + "0"


def test_a_prompt_repeats_the_ids_of_what_was_said(tmp_path: Path) -> None:
    w = load(taubench(tmp_path))
    assert w.output_ids is not None
    assert w.output_ptr is not None
    said = w.output_ids[w.output_ptr[0] : w.output_ptr[1]].tolist()
    assert prompt(w, 1)[: len(prompt(w, 0))] == prompt(w, 0)
    assert prompt(w, 1)[len(prompt(w, 0)) :][: len(said)] == said
    assert [len(prompt(w, s)) for s in (0, 1)] == w.prompt_tokens.tolist()
    assert w.sequence_shared_tokens[0] == 4 * ((w.prompt_tokens[0] + w.output_tokens[0]) // 4)


def test_what_comes_out_is_no_text_and_no_token_id_of_the_tokenizer(tmp_path: Path) -> None:
    w = load(taubench(tmp_path))
    assert w.output_ids is not None
    assert not np.intersect1d(w.output_ids, encode("who is it")).size
    assert KeyedIds(b"k").of([1])[0] != KeyedIds(b"l").of([1])[0]


REFLEXION = """
########################################
BEGIN TRIAL 1
Trial summary: Correct: 1
------------- BEGIN CORRECT AGENTS -------------

Question: how far
Thought 1: look it up
Action 1: Search[far]
Observation 1: very
Thought 2: done
Action 2: Finish[very]
Observation 2: Answer is CORRECT
Correct answer: very

------------- BEGIN INCORRECT AGENTS -----------

Question: how near
Thought 1: guess
Action 1: Finish[no]
Observation 1: Answer is INCORRECT
Correct answer: yes

BEGIN TRIAL 2
Question: how far
Thought 1: look it up
Action 1: Search[far]
Observation 1: very
Thought 2: done
Action 2: Finish[very]
Observation 2: Answer is CORRECT
Correct answer: very

Question: how near
Reflections:
- do not guess
Thought 1: think
Action 1: Finish[yes]
Observation 1: Answer is CORRECT
Correct answer: yes
"""


def test_reflexion_leaves_out_attempts_that_are_printed_again(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(REFLEXION)
    w = load(path)
    assert w.workflow_names == ("log/0", "log/1")
    assert w.provenance["not_imported"] == {"attempt printed again in a later trial": 1}
    assert np.bincount(w.stage_workflow).tolist() == [4, 4]
    first = "Question: how far\n"
    assert texts(w)[:2] == sizes(
        ("reflexion/react", [first], "Thought 1: look it up\n"),
        ("reflexion/react", [first, "Thought 1: look it up\n"], "Action 1: Search[far]\n"),
    )
    assert texts(w)[6][1] == len(encode("Question: how near\nReflections:\n- do not guess\n"))
    assert set(marked(w, 0)) == {"0", "1"}
    assert set(marked(w, 1)) == {"0", "2"}


OLD = """[2023-25-06 20:10:30 INFO] AgentTech Starts (1)

[2023-25-06 20:10:32 INFO] \x1b[32m[0] AI Assistant (Programmer):

one ```python
x = 1
``` two

[2023-25-06 20:10:33 INFO] \x1b[34m[0] AI User (Reviewer):

one ```python
x = 1
``` two

[2023-25-06 20:10:34 INFO] \x1b[34m[0] AI User (Reviewer):

please mend it

[2023-25-06 20:10:36 INFO] \x1b[32m[1] AI Assistant (Programmer):

mended
"""
NEW = """[2023-22-08 14:46:15 INFO] **[Preprocessing]**

**ChatDev Starts** (1)

[2023-22-08 14:46:23 INFO] Officer: **Officer<->Chief on : Demand, turn 0**

[ChatDev is a software company. You are Officer.]

an application

[2023-22-08 14:46:23 INFO] **[Seminar Conclusion]**: x

[2023-22-08 14:46:24 INFO] Programmer: **Programmer<->Chief on : Coding, turn 0**

[ChatDev is a software company. You are Programmer.]

``` code ```
"""


def test_chatdev_logs_of_both_forms_give_turns_without_what_users_parrot(tmp_path: Path) -> None:
    for name, text in (("a_old.log", OLD), ("b_new.log", NEW)):
        (tmp_path / name).write_text(text)
    w = load(tmp_path)
    assert w.workflow_names == ("a_old", "b_new")
    assert w.provenance["not_imported"] == {"message that repeats the one before": 1}
    code = "one ```python\nx = 1\n``` two"
    assert texts(w) == sizes(
        ("chatdev/Programmer", ["\n"], code),
        ("chatdev/Programmer", [code, "please mend it"], "mended"),
        ("chatdev/Officer", ["[ChatDev is a software company. You are Officer.]"], "an application"),
        ("chatdev/Programmer", ["[ChatDev is a software company. You are Programmer.]"], "``` code ```"),
    )
    assert set(marked(w, 0)) == {"0", "1"}
    assert marked(w, 0)[0] == marked(w, 0)[-1] == "0"


def test_sweagent_text_reads_every_assistant_message(tmp_path: Path) -> None:
    history = [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "issue"},
        {"role": "assistant", "content": "thus\n```\nedit 1:2\nx\nend_of_edit\n```"},
        {"role": "user", "content": "done"},
        {"role": "assistant", "content": "```\nsubmit\n```"},
    ]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a__b-1.traj").write_text(json.dumps({"history": history, "trajectory": []}))
    w = load(tmp_path, "sweagent_text")
    assert w.workflow_names == ("run/a__b-1",)
    assert [t[1:] for t in texts(w)] == [
        t[1:]
        for t in sizes(
            ("", ["rules", "issue"], history[2]["content"]),
            ("", ["rules", "issue", history[2]["content"], "done"], history[4]["content"]),
        )
    ]
    assert set(marked(w, 0)) == {"0", "1", "2"}
    assert set(marked(w, 1)) == {"0", "1"} or set(marked(w, 1)) == {"0", "2"}


def test_autocoderover_text_alternates_searcher_and_proxy_then_patches(tmp_path: Path) -> None:
    def talk(*pairs: tuple[str, str]) -> str:
        return json.dumps([{"role": r, "content": c} for r, c in pairs])

    folder = tmp_path / "run-1" / "task"
    folder.mkdir(parents=True)
    searched = (("system", "s"), ("user", "issue"), ("assistant", "look"))
    (folder / "conversation_round_0.json").write_text(talk(*searched))
    more = (*searched, ("user", "found"), ("assistant", "enough"))
    (folder / "conversation_round_10.json").write_text(talk(*more))
    for n in (0, 1):
        proxy = talk(("system", "p"), ("user", "look"), ("assistant", '{"calls": []}'))
        (folder / f"agent_proxy_{n}.json").write_text(f"[{proxy}]")
    patcher = (("system", "other"), *more[1:], ("assistant", "<patched>x</patched>"))
    (folder / "debug_agent_write_patch_1.json").write_text(talk(*patcher))
    w = load(tmp_path, "autocoderover_text")
    assert [t[0].partition("/")[2] for t in texts(w)] == [
        "searcher", "proxy", "searcher", "proxy", "patcher",
    ]  # fmt: skip
    assert w.workflow_names == ("run-1/task",)
    assert set(marked(w, 4)) == {"0", "2"} or len(set(marked(w, 4))) == 2


def test_mtbench_turns_follow_their_own_answers(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    rows = [
        {"question_id": q, "model_id": "m", "choices": [{"index": 0, "turns": ["first words", "more words"]}]}
        for q in (81, 82)
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    w = load(path)
    assert w.workflow_names == ("answers/81", "answers/82")
    assert texts(w)[1][1] > texts(w)[0][1] + len(encode("first words"))
    assert prompt(w, 0)[:20] != prompt(w, 2)[:20]


def test_an_option_names_the_delimiters_and_a_malformed_one_is_one_line(tmp_path: Path) -> None:
    path = taubench(tmp_path)
    w = load(path, structure='[[("who", "it")]]')
    assert set(marked(w, 0)) == {"0", "1"}
    with pytest.raises(InputError, match="structure"):
        load(path, structure="[(")


def test_what_is_not_asked_for_is_counted(tmp_path: Path) -> None:
    only = tmp_path / "only.txt"
    only.write_text("nobody\n")
    with pytest.raises(InputError, match="no trajectory to import"):
        load(taubench(tmp_path), "taubench", only=only)


@pytest.mark.parametrize("form", ["chatdev", "mtbench", "reflexion", "taubench", "sweagent_text"])
def test_an_empty_folder_and_broken_content_are_one_line(form: str, tmp_path: Path) -> None:
    suffix = {"chatdev": "log", "mtbench": "jsonl", "reflexion": "txt", "taubench": "json"}.get(form, "traj")
    with pytest.raises(InputError, match="no file named"):
        load(tmp_path, form)
    (tmp_path / f"x.{suffix}").write_bytes(b"{\xff\n")
    with pytest.raises(InputError):
        load(tmp_path, form)
