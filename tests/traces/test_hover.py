"""Laws of the HoVer importer, on claims written here."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import formats, io_hover
from traces._hover_flow import RETRIEVER_MS, retriever_ns
from traces.errors import InputError
from traces.schema import StageKind, Workload


def claim(uid: str, *titles: str, **fields: Any) -> dict[str, Any]:
    facts = [[t, k] for t in titles for k in range(2)]
    base = {"uid": uid, "claim": f"{uid} is a claim about something or other", "supporting_facts": facts}
    return base | {"label": "SUPPORTED", "num_hops": len(titles), "hpqa_id": "h"} | fields


def write(folder: Path, claims: Any) -> Path:
    path = folder / "hover.json"
    path.write_text(json.dumps(claims))
    return path


def agents(w: Workload, workflow: int) -> list[str]:
    return [w.agents[i] for i in w.stage_agent[w.stage_workflow == workflow]]


def many(n: int) -> list[dict[str, Any]]:
    return [claim(f"u{i}", *(f"T{i}-{k}" for k in range(2 + i % 3))) for i in range(n)]


def test_every_workflow_follows_the_loop_grammar_and_reads_each_title(tmp_path: Path) -> None:
    w = io_hover.read(write(tmp_path, many(90)))
    loops = {str(n): 0 for n in range(4)}
    for k in range(w.n_workflows):
        hops = 2 + k % 3
        row = agents(w, k)
        assert row[: 2 + 2 * hops] == ["planner", *["retriever", "reader"] * hops, "verifier"]
        tail = row[2 + 2 * hops :]
        n = len(tail) // 4
        assert tail == ["refiner", "retriever", "reader", "verifier"] * n + ["summarizer"]
        loops[str(n)] += 1
    assert w.provenance["workflows_by_loops"] == {n: c for n, c in loops.items() if c}
    assert len([c for c in loops.values() if c]) >= 3
    tool = w.stage_kind == StageKind.TOOL
    assert {w.agents[i] for i in w.stage_agent[tool]} == {"retriever"}


def test_more_hops_loop_more_often(tmp_path: Path) -> None:
    w = io_hover.read(write(tmp_path, many(300)))
    refiner = w.agents.index("refiner")
    per = np.bincount(w.stage_workflow[w.stage_agent == refiner], minlength=300).reshape(-1, 3).mean(axis=0)
    assert per[0] < per[1] < per[2]


def readers(w: Workload, workflow: int) -> list[int]:
    return np.flatnonzero(
        (w.stage_workflow == workflow) & (w.stage_agent == w.agents.index("reader"))
    ).tolist()


def common(w: Workload, a: int, b: int) -> int:
    mine = set(w.prefix.path(int(w.prompt_segment[a])))
    shared = [s for s in w.prefix.path(int(w.prompt_segment[b])) if s in mine]
    return int(w.prefix.end_tokens[shared[-1]]) if shared else 0


def test_two_claims_share_a_passage_exactly_when_they_share_its_title(tmp_path: Path) -> None:
    claims = [claim("u1", "A", "B"), claim("u2", "C", "A"), claim("u3", "D", "E")]
    w = io_hover.read(write(tmp_path, claims), block_tokens=1, system_tokens=100, max_loops=0)
    (a1, b1), (c2, a2), (d3, _) = (readers(w, k) for k in range(3))
    assert common(w, a1, a2) > 100  # the system prompt and the passage
    for x, y in ((a1, c2), (b1, a2), (a1, d3), (a1, b1)):
        assert common(w, x, y) == 100
    planner = w.agents.index("planner")
    first, second, third = np.flatnonzero(w.stage_agent == planner).tolist()
    assert common(w, first, second) == common(w, second, third) == 100
    assert common(w, first, a1) == 0  # another agent, another system prompt


def test_a_verifier_called_again_continues_its_own_conversation(tmp_path: Path) -> None:
    w = io_hover.read(write(tmp_path, many(60)), block_tokens=1)
    verifier = w.agents.index("verifier")
    again = 0
    for k in range(w.n_workflows):
        calls = np.flatnonzero((w.stage_workflow == k) & (w.stage_agent == verifier)).tolist()
        for a, b in pairwise(calls):
            assert int(w.sequence_segment[a]) in w.prefix.path(int(w.prompt_segment[b]))
            again += 1
    assert again > 5


def test_a_claim_has_the_same_workflow_whatever_stands_beside_it(tmp_path: Path) -> None:
    claims = many(20)
    whole = io_hover.read(write(tmp_path, claims))
    alone = io_hover.read(write(tmp_path, claims[7:8]))
    mine = whole.stage_workflow == 7
    for column in ("prompt_tokens", "output_tokens", "stage_duration_ns"):
        assert getattr(whole, column)[mine].tolist() == getattr(alone, column).tolist()
    assert agents(whole, 7) == agents(alone, 0)


def test_the_seed_decides_the_draws_and_nothing_else_does(tmp_path: Path) -> None:
    path = write(tmp_path, many(20))
    assert io_hover.read(path).digest() == io_hover.read(path).digest()
    assert io_hover.read(path).digest() != io_hover.read(path, seed=1).digest()


def test_claims_left_out_are_counted(tmp_path: Path) -> None:
    claims = [
        claim("u1", "A", "B"),
        claim("u2"),
        claim("u3", "A", "C", claim="u1 is a claim about something or other"),
    ]
    path = write(tmp_path, claims)
    w = io_hover.read(path)
    assert w.workflow_names == ("u1",)
    assert w.provenance["not_imported"] == {
        "claim with the text of an earlier one": 1,
        "claim without supporting facts": 1,
    }
    names = tmp_path / "names.txt"
    names.write_text("u3\n")
    assert io_hover.read(path, only=names).workflow_names == ("u3",)


def test_retriever_times_reach_their_quantiles() -> None:
    times = sorted(retriever_ns(i * (2**64 // 10_000)) for i in range(10_000))
    for per_mille, ms in RETRIEVER_MS[:-1]:
        assert abs(times[per_mille * 10] - ms * 1_000_000) <= 0.01 * ms * 1_000_000 + 1
    assert times[-1] <= 4_000_000_000


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"a": 1}, "hover.json: expected a list of claims"),
        ([3], "hover.json: field '[0]': got a whole number, expected an object"),
        ([claim("u1", "A"), {"uid": "u2"}], "field '[1].claim': missing"),
        ([claim("u1", "A", num_hops="2")], "field '[0].num_hops': got a text, expected a whole number"),
        (
            [claim("u1", "A", supporting_facts=[["A", 1], [7]])],
            "field '[0].supporting_facts[1]': expected a list",
        ),
        ([claim("u1")], "hover.json: no claim with supporting facts in it"),
    ],
)
def test_malformed_claims_name_file_and_field(tmp_path: Path, claims: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        io_hover.read(write(tmp_path, claims))
    assert message in str(error.value)


def test_options_out_of_range_say_what_is_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, [claim("u1", "A", "B")])
    with pytest.raises(InputError, match="max_loops=9, allowed: 0 to 8"):
        io_hover.read(path, max_loops=9)
    with pytest.raises(InputError, match="system_tokens=0, expected at least 1"):
        io_hover.read(path, system_tokens=0)


def test_a_folder_and_a_file_are_recognised_by_their_content(tmp_path: Path) -> None:
    path = write(tmp_path, many(2))
    assert formats.sniff(path) == formats.sniff(tmp_path) == "hover"
