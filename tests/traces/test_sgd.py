"""Laws of the importer of Schema-Guided Dialogue, on dialogues written here."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import formats, io_sgd
from traces._hci_flow import outcome
from traces._sgd_records import ALTERNATIVES, DETAILS, OTHER, SELECT
from traces.branches import Branches, StageFlag
from traces.errors import InputError
from traces.schema import StageKind, Workload


def turn(speaker: str, text: str, *actions: tuple[str, str, list[str]], call: Any = None) -> dict[str, Any]:
    frame: dict[str, Any] = {
        "service": "Films_1",
        "actions": [{"act": a, "slot": s, "values": v, "canonical_values": v} for a, s, v in actions],
    }
    if call is not None:
        frame |= {"service_call": {"method": "Find", "parameters": call}, "service_results": []}
    return {"speaker": speaker, "utterance": text, "frames": [frame]}


def offer(*values: str, text: str = "how about this one", call: Any = None) -> dict[str, Any]:
    return turn("SYSTEM", text, ("OFFER", "title", list(values)), call=call)


def user(act: str, *values: str) -> dict[str, Any]:
    return turn("USER", f"I say {act}", (act, "title", list(values)))


def reply(text: str = "here it is") -> dict[str, Any]:
    return turn("SYSTEM", text, ("INFORM", "price", ["3"]))


def dialogue(uid: str, *turns: dict[str, Any]) -> dict[str, Any]:
    return {"dialogue_id": uid, "services": ["Films_1"], "turns": list(turns)}


HELLO = turn("USER", "find me a film", ("INFORM_INTENT", "intent", ["FindFilm"]))
PICK = (user("SELECT"), reply())


def write(folder: Path, *dialogues: Any) -> Path:
    path = folder / "dialogues_001.json"
    path.write_text(json.dumps(list(dialogues)))
    return path


def branches(w: Workload) -> Branches:
    assert w.branches is not None
    return w.branches


def agents(w: Workload, stages: Any) -> list[str]:
    return [w.agents[i] for i in w.stage_agent[stages]]


def test_a_chain_goes_on_until_the_user_picks(tmp_path: Path) -> None:
    one = dialogue(
        "1_1", HELLO, offer("A", call={"genre": "x"}), user("REQUEST"), reply(), user("REQUEST_ALTS"), offer("B"), *PICK
    )  # fmt: skip
    w = io_sgd.read(write(tmp_path, one))
    assert w.workflow_names == ("1_1:1",)
    assert agents(w, w.canonical()) == [
        "search", "assistant", "user", "assistant", "user", "search", "assistant", "user", "details", "assistant",
    ]  # fmt: skip
    b = branches(w)
    acts = [outcome(a) for a in (DETAILS, ALTERNATIVES, SELECT)]
    assert b.option_outcome[b.option_chosen].tolist() == acts
    assert (w.stage_kind[b.branch_stage] == StageKind.WAIT).all()
    assert b.option_offered.all()
    assert not b.stage_flags[w.stage_kind == StageKind.WAIT].any()


def test_what_an_option_runs_depends_on_the_template_alone(tmp_path: Path) -> None:
    w = io_sgd.read(write(tmp_path, dialogue("1_1", HELLO, offer("A"), user("REQUEST"), reply(), *PICK)))
    b = branches(w)
    seen: dict[int, set[tuple[str, ...]]] = {}
    for o in range(b.n_options):
        path = b.option_stage_idx[b.option_stage_ptr[o] : b.option_stage_ptr[o + 1]]
        seen.setdefault(int(b.option_outcome[o]), set()).add(tuple(agents(w, path)))
        assert (b.stage_flags[path] == StageFlag.SPECULABLE).all()
    assert seen == {
        outcome(SELECT): {("details", "assistant")},
        outcome(ALTERNATIVES): {("search", "assistant")},
        outcome(DETAILS): {("assistant",)},
        outcome(OTHER): {("assistant",)},
    }


def test_a_menu_has_an_option_for_each_item_in_its_order(tmp_path: Path) -> None:
    menu = dialogue("1_2", HELLO, offer("A", "B", "C"), user("SELECT", "B"), reply())
    path = write(tmp_path, menu, dialogue("1_3", HELLO, offer("A"), *PICK))
    w = io_sgd.read(path, offers="menu")
    b = branches(w)
    assert w.workflow_names == ("1_2:1",)
    assert b.option_outcome.tolist() == [
        *(outcome(SELECT, k) for k in range(3)), *(outcome(a) for a in (ALTERNATIVES, DETAILS, OTHER)),
    ]  # fmt: skip
    assert b.option_chosen.tolist() == [False, True, False, False, False, False]
    assert len(np.unique(b.option_arguments[:3])) == 3
    assert w.provenance["records"]["picks_by_place_on_a_menu_of_three"] == {"1": 1}
    assert w.provenance["not_imported"] == {"offer that is not menu": 1}
    assert io_sgd.read(path).workflow_names == ("1_3:1",)
    assert io_sgd.read(path, offers="all").n_workflows == 2
    # One coordinate for menus, another one for single offers: what users do there differs.
    assert len(np.unique(branches(io_sgd.read(path, offers="all")).branch_coordinate)) == 2


def test_picks_of_nothing_on_offer_and_offers_without_an_answer_are_counted(tmp_path: Path) -> None:
    odd = dialogue("1_1", HELLO, offer("A", "B"), user("SELECT", "C"), reply(), user("THANK_YOU"), offer("D"))
    w = io_sgd.read(write(tmp_path, odd, dialogue("1_2", HELLO, offer("A"), *PICK)))
    assert w.workflow_names == ("1_2:1",)
    assert w.provenance["not_imported"] == {
        "offer without an answer": 1,
        "pick that names no item on offer": 1,
    }


def test_users_think_longer_over_longer_texts(tmp_path: Path) -> None:
    waits = []
    for words in (5, 60):
        folder = tmp_path / str(words)
        folder.mkdir()
        text = " ".join(["word"] * words)
        every = [dialogue(f"1_{k}", HELLO, offer(f"A{k}", text=f"{text} {k}"), *PICK) for k in range(60)]
        w = io_sgd.read(write(folder, *every))
        waits.append(w.stage_duration_ns[w.stage_kind == StageKind.WAIT].mean() / 1e6)
    # 252 ms a word; the pace of users has a mean near 1.1 of its median.
    assert 0.9 * 55 * 252 < waits[1] - waits[0] < 1.5 * 55 * 252


def test_details_of_an_item_recur_and_replies_do_not(tmp_path: Path) -> None:
    first = dialogue("1_1", HELLO, offer("A"), *PICK)
    second = dialogue("1_2", turn("USER", "a film please"), offer("A"), *PICK)
    w = io_sgd.read(write(tmp_path, first, second))
    b = branches(w)
    for agent, alike in (("details", True), ("assistant", False)):
        rows = [
            b.stage_content[
                (w.stage_workflow == k) & w.canonical() & (w.stage_agent == w.agents.index(agent))
            ]
            for k in range(2)
        ]
        assert (rows[0][-1] == rows[1][-1]) == alike
    assert w.provenance["recurrence"]["item picked"] == {"2": 0.5}


def test_a_round_continues_the_conversation_of_the_one_before(tmp_path: Path) -> None:
    w = io_sgd.read(
        write(tmp_path, dialogue("1_1", HELLO, offer("A"), user("REQUEST"), reply(), *PICK)), block_tokens=1
    )
    calls = np.flatnonzero((w.stage_kind == StageKind.LLM) & w.canonical()).tolist()
    for a, c in pairwise(calls):
        assert int(w.sequence_segment[a]) in w.prefix.path(int(w.prompt_segment[c]))


def test_recorded_replies_have_the_length_of_the_utterance(tmp_path: Path) -> None:
    path = write(tmp_path, dialogue("1_1", HELLO, offer("A"), user("SELECT"), reply("x" * 444)))
    w = io_sgd.read(path, replies="recorded")
    last = np.flatnonzero(w.canonical())[-1]
    assert w.output_tokens[last] == 100
    assert io_sgd.read(path).digest() == io_sgd.read(path).digest() != w.digest()


def test_sgd_is_recognised(tmp_path: Path) -> None:
    path = write(tmp_path, dialogue("1_1", HELLO, offer("A"), *PICK))
    assert formats.sniff(path) == "sgd"
    (tmp_path / "schema.json").write_text('[{"service_name": "Films_1"}]')
    assert io_sgd.read(tmp_path).n_workflows == 1


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ({"dialogue_id": "1_1"}, "turns'?: missing"),
        ({"dialogue_id": "1_1", "turns": [{"speaker": "USER", "frames": []}]}, "utterance'?: missing"),
        (dialogue("1_1", turn("SYSTEM", "x", ("OFFER", "t", [3]))), "expected texts"),  # type: ignore[list-item]
        (dialogue("1_1", HELLO), "no offer asked for"),
    ],
)
def test_bad_dialogues_end_in_one_line(tmp_path: Path, broken: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        io_sgd.read(write(tmp_path, broken))


@pytest.mark.parametrize(
    ("options", "text"),
    [({"offers": "menus"}, "did you mean 'menu'"), ({"replies": "record"}, "did you mean 'recorded'"),
     ({"clock": "hci2"}, "did you mean 'hci'"), ({"block_tokens": 0}, "at least 1")],
)  # fmt: skip
def test_bad_options_of_sgd_end_in_one_line(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        io_sgd.read(write(tmp_path, dialogue("1_1", HELLO, offer("A"), *PICK)), **options)
