"""Laws of the FinanceBench importer, on questions written here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import formats, io_financebench
from traces.errors import InputError
from traces.schema import StageKind, Workload


def question(n: int, filing: str = "F", pages: tuple[int, ...] = (1,), **fields: Any) -> dict[str, Any]:
    evidence = [
        {
            "doc_name": filing, "evidence_page_num": p, "evidence_text": "e" * 100,
            "evidence_text_full_page": "p" * (1000 + p),
        }
        for p in pages
    ]  # fmt: skip
    base = {"financebench_id": f"financebench_id_{n:05d}", "doc_name": filing, "evidence": evidence}
    return base | {"question": "q" * (100 + n), "answer": "a" * 50, "justification": "j" * 200} | fields


def write(folder: Path, *questions: dict[str, Any]) -> Path:
    path = folder / "financebench_open_source.jsonl"
    path.write_text("".join(json.dumps(q) + "\n" for q in questions))
    return path


def first_calls(w: Workload) -> list[int]:
    return [int(np.flatnonzero(w.stage_workflow == k)[0]) for k in range(w.n_workflows)]


def common(w: Workload, a: int, b: int) -> int:
    both = set(w.prefix.path(int(w.prompt_segment[a]))) & set(w.prefix.path(int(w.prompt_segment[b])))
    return max((int(w.prefix.end_tokens[s]) for s in both), default=0)


def test_every_question_runs_the_same_pipeline(tmp_path: Path) -> None:
    w = io_financebench.read(write(tmp_path, *(question(n, f"F{n}") for n in range(4))))
    for k in range(4):
        agents = [w.agents[a] for a in w.stage_agent[w.stage_workflow == k]]
        assert agents == [
            "researcher", "retrieval", "researcher", "extractor", "analyst", "calculator", "analyst", "writer",
            "reviewer",
        ]  # fmt: skip


def test_questions_share_the_pages_of_their_filing_and_nothing_private(tmp_path: Path) -> None:
    path = write(tmp_path, question(1), question(2), question(3, pages=(2,)), question(4, "G"))
    w = io_financebench.read(path, block_tokens=1, system_tokens=100)
    a, b, c, d = first_calls(w)
    page = 1001 * 100 // 444
    assert common(w, a, b) == 100 + page
    assert common(w, a, c) == common(w, a, d) == 100


def test_lengths_are_those_of_the_texts(tmp_path: Path) -> None:
    w = io_financebench.read(write(tmp_path, question(7)), system_tokens=100)
    llm = np.flatnonzero(w.stage_kind == StageKind.LLM)
    assert int(w.prompt_tokens[llm[0]]) == 100 + 1001 * 100 // 444 + 107 * 100 // 444
    by_agent = {w.agents[w.stage_agent[s]]: int(w.output_tokens[s]) for s in llm}
    assert by_agent["extractor"] == 100 * 100 // 444
    assert by_agent["analyst"] == 200 * 100 // 444
    assert by_agent["writer"] == 50 * 100 // 444 + 200 * 100 // 444
    assert by_agent["reviewer"] == 50 * 100 // 444


def test_parts_split_by_filing(tmp_path: Path) -> None:
    path = write(tmp_path, *(question(n, f"F{n // 2}") for n in range(80)))
    parts = [set(io_financebench.read(path, part=p).workflow_names) for p in ("train", "test")]
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == 80
    filings = [{int(n[-5:]) // 2 for n in p} for p in parts]
    assert not filings[0] & filings[1]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path, question(1), question(2, pages=()), question(3, justification=None))
    w = io_financebench.read(path)
    assert w.provenance["not_imported"] == {"question without evidence": 1}
    assert w.provenance["records"]["questions_without_justification"] == 1


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (question(1, evidence=3), "evidence': got a whole number, expected a list"),
        (question(1, evidence=[{}]), "evidence[0].evidence_page_num': missing"),
        ({"financebench_id": "x"}, "doc_name': missing"),
    ],
)
def test_malformed_questions_name_file_line_and_field(
    tmp_path: Path, record: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        io_financebench.read(write(tmp_path, question(0), record))
    assert message in str(error.value)
    assert "line 2" in str(error.value)


def test_a_folder_and_a_file_are_recognised_by_their_content(tmp_path: Path) -> None:
    assert formats.sniff(write(tmp_path, question(1))) == formats.sniff(tmp_path) == "financebench"
