"""Laws of the MuSiQue importer, on questions written here."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import formats, io_musique
from traces.branches import Branches
from traces.errors import InputError
from traces.identity import identity, plain
from traces.recurrence import seen_before
from traces.schema import StageKind, Workload

# "Zed Hall was built by Ann Lee. ..." answers the first hop; the second looks Ann Lee up.
TEXTS = {
    "Zed Hall": "Zed Hall stands in Port Ool. The hall in Zed was built by Ann Lee. Bob Ray lived there.",
    "Ann Lee": "Ann Lee was born in Hull.",
    "Port Ool": "Port Ool is a town.",
    "Hull": "Hull was founded by Cy Dorn.",
}


def name(text: str) -> int:
    return identity("name", plain(text))


def question(uid: str, text: str, hops: list[tuple[str, str, str]], titles: list[str]) -> dict[str, Any]:
    """hops: (sub-question, answer, title)."""
    paragraphs = [{"idx": i, "title": t, "paragraph_text": TEXTS[t]} for i, t in enumerate(titles)]
    steps = [
        {"id": i, "question": q, "answer": a, "paragraph_support_idx": titles.index(t)}
        for i, (q, a, t) in enumerate(hops)
    ]
    return {"id": uid, "question": text, "paragraphs": paragraphs, "question_decomposition": steps}


BUILDER = [("Zed Hall >> built by", "Ann Lee", "Zed Hall"), ("Where was #1 born?", "Hull", "Ann Lee")]


def born(uid: str = "2hop__1_2") -> dict[str, Any]:
    return question(
        uid, "Where was whoever built Zed Hall born?", BUILDER, ["Port Ool", "Zed Hall", "Ann Lee"]
    )


def bare(record: dict[str, Any]) -> dict[str, Any]:
    """The same question as a list without paragraphs holds it."""
    steps = [
        {k: v for k, v in s.items() if k != "paragraph_support_idx"}
        | {"document_id": f"{record['paragraphs'][s['paragraph_support_idx']]['title']}_0"}
        for s in record["question_decomposition"]
    ]
    return {k: v for k, v in record.items() if k != "paragraphs"} | {"question_decomposition": steps}


def write(folder: Path, *records: dict[str, Any], lines: bool = True) -> Path:
    path = folder / ("musique.jsonl" if lines else "musique.json")
    text = "".join(json.dumps(r) + "\n" for r in records) if lines else json.dumps(records)
    path.write_text(text)
    return path


def branches(w: Workload) -> Branches:
    assert w.branches is not None
    return w.branches


def agents(w: Workload, stages: Any) -> list[str]:
    return [w.agents[i] for i in w.stage_agent[stages]]


def options(b: Branches, branch: int) -> range:
    return range(int(b.option_ptr[branch]), int(b.option_ptr[branch + 1]))


def path_of(b: Branches, option: int) -> list[int]:
    return b.option_stage_idx[b.option_stage_ptr[option] : b.option_stage_ptr[option + 1]].tolist()


def test_a_question_is_thought_searched_and_answered_hop_by_hop(tmp_path: Path) -> None:
    w = io_musique.read(write(tmp_path, born()))
    assert agents(w, w.canonical()) == ["thinker", "search", "thinker", "search", "thinker"]
    b = branches(w)
    assert b.n_branches == 3
    assert b.branch_open_space.all()
    looked_up = b.option_outcome[b.option_chosen].tolist()
    assert looked_up == [name("Zed Hall"), name("Ann Lee"), identity("react", "answer")]
    # Each later decision is nested in what was chosen before it; the answer has no path.
    chosen = np.flatnonzero(b.option_chosen)
    assert b.branch_nested.tolist() == [-1, *chosen[:2].tolist()]
    assert [agents(w, path_of(b, o)) for o in chosen] == [["search", "thinker"], ["search", "thinker"], []]


def test_a_thought_sees_what_was_found_and_no_earlier_thought(tmp_path: Path) -> None:
    w = io_musique.read(write(tmp_path, born()))
    last = np.flatnonzero(w.canonical())[-1]
    parents = w.parent_idx[w.parent_ptr[last] : w.parent_ptr[last + 1]]
    assert (w.stage_kind[parents] == StageKind.TOOL).all()
    assert len(parents) == 2


def test_names_are_ranked_by_what_their_sentence_has_to_do_with_the_question(tmp_path: Path) -> None:
    w = io_musique.read(write(tmp_path, born()))
    b = branches(w)
    first = [int(b.option_outcome[o]) for o in options(b, 0)]
    assert first == [name("Zed Hall")]  # the only name in the question
    second = {int(b.option_outcome[o]): float(b.option_score[0, o]) for o in options(b, 1)}
    assert max(second, key=second.__getitem__) == name("Ann Lee")
    assert set(second) == {name("Ann Lee"), name("Port Ool"), name("Bob Ray")}
    assert sorted(second.values()) == pytest.approx([1 / 3, 1 / 2, 1], abs=1e-4)
    assert name("Zed Hall") not in second  # it was looked up


def test_a_wrong_name_costs_its_search_and_the_thought_after_it(tmp_path: Path) -> None:
    w = io_musique.read(write(tmp_path, born()))
    b = branches(w)
    lost = [o for o in range(b.n_options) if not b.option_chosen[o]]
    assert len(lost) >= 3
    for o in lost:
        search, thought = path_of(b, o)
        assert agents(w, [search, thought]) == ["search", "thinker"]
        assert b.stage_option[[search, thought]].tolist() == [o, o]
        assert w.prompt_tokens[thought] > w.prompt_tokens[b.branch_stage[b.option_branch[o]]]


def test_a_name_no_drafter_ranks_is_an_option_that_is_not_offered(tmp_path: Path) -> None:
    hidden = [("Zed Hall >> built by", "a mason", "Zed Hall"), ("Where was #1 born?", "Hull", "Ann Lee")]
    record = question("2hop__1_2", "Where was whoever built Zed Hall born?", hidden, ["Zed Hall", "Ann Lee"])
    b = branches(io_musique.read(write(tmp_path, record)))
    chosen = np.flatnonzero(b.option_chosen)[1]
    assert b.option_outcome[chosen] == name("a mason")
    assert not b.option_offered[chosen]


def test_a_search_is_the_same_wherever_its_name_is_looked_up(tmp_path: Path) -> None:
    other = question(
        "2hop__3_4", "Who founded the birthplace of Ann Lee?",
        [("Ann Lee >> born in", "Hull", "Ann Lee"), ("Who founded #1 ?", "Cy Dorn", "Hull")], ["Hull", "Ann Lee"],
    )  # fmt: skip
    w = io_musique.read(write(tmp_path, born(), other))
    b = branches(w)
    search = np.flatnonzero(w.stage_kind == StageKind.TOOL)
    of_ann = [s for s in search.tolist() if b.stage_content[s] == np.uint64(name("Ann Lee"))]
    assert len({int(w.stage_workflow[s]) for s in of_ann}) == 2
    assert len({(int(w.stage_duration_ns[s]), int(b.stage_fingerprint[s])) for s in of_ann}) == 1
    shares = w.provenance["recurrence"]
    assert shares["entity looked up"] == {"2": 0.25}
    assert shares["supporting title"] == {"2": 0.25}
    assert shares["resolved sub-question"] == {"2": 0.0}


def test_sub_agents_work_on_their_topic_alone_and_all_at_once(tmp_path: Path) -> None:
    w = io_musique.read(
        write(tmp_path, born(), born("2hop__3_4") | {"question": "Zed Hall: born where?"}), flow="subagent"
    )
    b = branches(w)
    one = w.canonical() & (w.stage_workflow == 0)
    assert agents(w, one) == ["orchestrator", *["search", "researcher"] * 2, "writer"]
    assert not b.branch_exclusive.any()
    assert np.bincount(b.option_branch[b.option_chosen]).tolist() == [2, 2]
    work = (w.stage_agent == w.agents.index("researcher")) & w.canonical()
    first, second = (set(b.stage_content[work & (w.stage_workflow == k)].tolist()) for k in (0, 1))
    assert first == second == {name("Zed Hall"), name("Ann Lee")}
    # The retriever knows titles of the question's own paragraphs, the other drafter names in the question.
    assert b.drafters == ("entity", "retrieval")
    rows = {int(b.option_outcome[o]): b.option_score[:, o] for o in options(b, 0)}
    assert rows[name("Zed Hall")][0] == 1
    assert np.isnan(rows[name("Port Ool")][0])
    assert np.isfinite([rows[name(t)][1] for t in ("Port Ool", "Zed Hall", "Ann Lee")]).all()


def test_a_paragraph_of_another_question_serves_when_it_has_title_and_answer(tmp_path: Path) -> None:
    lone = bare(born("2hop__5_6"))
    path = write(tmp_path, born(), lone)
    both = io_musique.read(path, passages="read")
    assert both.workflow_names == ("2hop__1_2", "2hop__5_6")
    lone["question_decomposition"][0]["answer"] = "Cy Dorn"
    wrong = io_musique.read(write(tmp_path, born(), lone), passages="read")
    assert wrong.workflow_names == ("2hop__1_2",)
    assert wrong.provenance["not_imported"] == {"question without the paragraphs": 1}
    assert io_musique.read(write(tmp_path, born(), lone), passages="own").workflow_names == ("2hop__1_2",)


def test_records_of_one_id_are_one_question_and_others_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, bare(born()), born(), {"id": "2hop__9_9", "predicted_answer": "x"})
    w = io_musique.read(path, passages="own")
    assert w.n_workflows == 1
    assert w.provenance["not_imported"] == {"record without decomposition": 1}
    again = io_musique.read(write(tmp_path, born(), bare(born())))
    assert again.provenance["not_imported"] == {"record with the id of another": 1}


def test_musique_is_recognised_in_both_forms(tmp_path: Path) -> None:
    for lines in (True, False):
        path = write(tmp_path, born(), lines=lines)
        assert formats.sniff(path) == "musique"
        assert io_musique.read(path).digest() == io_musique.read(path).digest()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"question_decomposition": []}, "expected at least one hop"),
        (
            {"question_decomposition": [{"question": "#1 ?", "answer": "x", "paragraph_support_idx": 0}]},
            "before it",
        ),
        (
            {"question_decomposition": [{"question": "q", "answer": "x", "paragraph_support_idx": 9}]},
            "no such para",
        ),
        ({"question": 3}, "expected a text"),
    ],
)
def test_bad_questions_end_in_one_line(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        io_musique.read(write(tmp_path, born() | change))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"flow": "raect"}, "did you mean 'react'"),
        ({"passages": "owned"}, "did you mean 'own'"),
        ({"clock": "hci"}, "no quantity 'thought_tokens'"),
        ({"most_options": 0}, "at least 1"),
    ],
)
def test_bad_options_of_musique_end_in_one_line(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        io_musique.read(write(tmp_path, born()), **options)


def test_recurrence_grows_with_what_is_seen_and_ends_at_the_repeats_there_are() -> None:
    groups = [[i % 40, 1000 + i] for i in range(200)]
    shares = seen_before(groups, sizes=(10, 50, 100, 200))
    values = list(shares.values())
    assert all(a < b for a, b in pairwise(values))
    assert shares[200] == round((400 - 240) / 400, 4)  # whatever the order: all mentions but first ones
    assert seen_before([[7, 7]]) == {1: 0.5}
    assert seen_before([[1], [2]]) == {2: 0.0}


def many(n: int) -> list[dict[str, Any]]:
    """Questions about a hall and its builder each, no two of which share an article."""
    out = []
    for i in range(n):
        titles = ["Port Ool", "Zed Hall", "Ann Lee"]
        made = question(f"2hop__{i}_{i}", f"Where was whoever built hall {i} born?", BUILDER, titles)
        for paragraph in made["paragraphs"]:
            paragraph["title"] += f" no {i}"
        out.append(made)
    return out


def test_a_mix_repeats_in_whole_in_part_and_not_at_all(tmp_path: Path) -> None:
    w = io_musique.read(write(tmp_path, *many(40)), flow="subagent", mix=True)
    b = branches(w)
    classes = [n.split("/")[0] for n in w.workflow_names]
    counts = w.provenance["records"]["requests_by_class"]
    assert counts == {c: classes.count(c) for c in ("base", "exact", "partial", "fresh")}
    assert min(counts.values()) >= 5
    bases = classes.count("base")
    assert set(classes[:bases]) == {"base"}  # what is repeated comes first
    assert len(set(classes[bases : bases + 6])) > 1  # the rest is mixed
    rows = {
        n: b.stage_content[(w.stage_workflow == i) & w.canonical()].tolist()
        for i, n in enumerate(w.workflow_names)
    }
    topics = {n: set(r[1:-1]) for n, r in rows.items()}
    for name, row in rows.items():
        kind, _, ids = name.partition("/")
        if kind == "exact":
            assert row == rows[f"base/{ids}"]
        if kind == "partial":
            first, donor = ids.split("+")
            assert len(topics[name] & topics[f"base/{first}"]) == 1
            assert row[0] != rows[f"base/{first}"][0]
            assert donor != first
        if kind == "fresh":
            assert not topics[name] & set().union(*(t for n, t in topics.items() if n != name))


def test_a_mix_is_made_again_from_its_own_names(tmp_path: Path) -> None:
    path = write(tmp_path, *many(40))
    w = io_musique.read(path, flow="subagent", mix=True)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(w.workflow_names))
    assert io_musique.read(path, flow="subagent", mix=True, only=names).digest() == w.digest()
    with pytest.raises(InputError, match="subagent only"):
        io_musique.read(path, mix=True)


@pytest.mark.parametrize("flow", ["react", "subagent"])
def test_a_question_has_the_same_workflow_whatever_stands_beside_it(tmp_path: Path, flow: str) -> None:
    every = many(6)
    whole = io_musique.read(write(tmp_path, *every), flow=flow)
    alone = io_musique.read(write(tmp_path, every[3]), flow=flow)
    mine = whole.stage_workflow == 3
    for column in ("prompt_tokens", "output_tokens", "stage_duration_ns"):
        assert getattr(whole, column)[mine].tolist() == getattr(alone, column).tolist()
    assert branches(whole).stage_content[mine].tolist() == branches(alone).stage_content.tolist()
