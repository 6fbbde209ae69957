"""Laws of the Weka importer, on traces written here."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import formats, io_weka
from traces.errors import InputError
from traces.schema import StageKind, Workload

S = 1_000_000_000


def call(t: float, api: float | None, blocks: list[int], **fields: Any) -> dict[str, Any]:
    base = {
        "t": t, "type": "n", "model": "claude-opus", "in": 64 * len(blocks) + 5, "out": 100,
        "hash_ids": blocks, "input_types": ["tool_result"],
    }  # fmt: skip
    return base | ({} if api is None else {"api_time": api}) | fields


def trace(name: str, requests: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {"id": name, "block_size": 64, "hash_id_scope": "local", "requests": requests} | fields


def write(folder: Path, *traces: Any) -> Path:
    for i, value in enumerate(traces):
        (folder / f"t{i}.json").write_text(json.dumps(value))
    return folder


def stages(w: Workload, agent: str) -> list[int]:
    return [int(s) for s in np.flatnonzero(w.stage_agent == w.agents.index(agent))]


def parents(w: Workload, stage: int) -> list[int]:
    return w.parent_idx[w.parent_ptr[stage] : w.parent_ptr[stage + 1]].tolist()


def test_a_human_gap_is_a_wait_and_a_tool_gap_is_a_tool(tmp_path: Path) -> None:
    w = io_weka.read(
        write(
            tmp_path,
            trace(
                "a", [call(0, 2.5, [1]), call(10, 1, [1, 2]), call(20, 1, [1, 2, 3], input_types=["text"])]
            ),
        )
    )
    assert w.stage_kind.tolist() == [
        StageKind.LLM,
        StageKind.TOOL,
        StageKind.LLM,
        StageKind.WAIT,
        StageKind.LLM,
    ]
    assert w.stage_duration_ns.tolist() == [0, 7.5 * S, 0, 9 * S, 0]
    assert [parents(w, s) for s in range(5)] == [[], [0], [1], [2], [3]]


def test_equal_local_ids_of_two_traces_share_nothing(tmp_path: Path) -> None:
    w = io_weka.read(
        write(tmp_path, trace("a", [call(0, 1, [1, 2])]), trace("b", [call(0, 1, [1, 2, 3], out=7)])),
    )
    assert (w.prefix.parent_segment == -1).all()
    assert w.prompt_shared_tokens.tolist() == [128, 192]  # the partial block of 5 tokens has no identity


def test_parallel_subagents_start_with_their_parent_and_are_joined_when_they_have_ended(
    tmp_path: Path,
) -> None:
    sub = [call(0, 2, [70], model="haiku"), call(3, 4, [70, 71], model="haiku")]
    entries = [
        {"t": 18.0, "type": "subagent", "subagent_type": "Explore", "duration_ms": 7900, "requests": sub},
        {"t": 40.0, "type": "subagent", "subagent_type": "Explore", "duration_ms": 29900, "requests": sub},
    ]
    late = call(0, 25, [70, 72], model="haiku")
    entries[1] = entries[1] | {"requests": [late]}
    w = io_weka.read(
        write(
            tmp_path,
            trace("a", [call(0, 10, [1]), entries[0], call(30, 1, [1, 2]), entries[1], call(50, 1, [1])]),
        )
    )
    assert w.agents == ("main", "explore")
    main, explore = stages(w, "main"), stages(w, "explore")
    assert len(main) == len(explore) == 3
    starts = [parents(w, parents(w, s)[0]) for s in explore]
    assert starts.count([main[0]]) == 2  # both sub-agents follow the call that started them
    first_join, second_join = (set(parents(w, parents(w, s)[0])) for s in main[1:])
    assert len(first_join) == len(second_join) == 2
    assert first_join | second_join >= {main[0], main[1]}
    assert (first_join | second_join) & set(explore) == {s for s in explore if s not in {explore[0]}} | (
        {explore[0]} & second_join
    )


def test_aux_calls_to_a_small_model_are_a_chain_of_their_own(tmp_path: Path) -> None:
    w = io_weka.read(
        write(
            tmp_path,
            trace(
                "a",
                [
                    call(0, 1, [1]),
                    call(5, 1, [90], model="claude-haiku", type="s"),
                    call(8, 1, [1, 2]),
                    call(12, 1, [90, 91], model="claude-haiku"),
                ],
            ),
        )
    )
    main, aux = stages(w, "main"), stages(w, "aux")
    assert parents(w, parents(w, main[1])[0]) == [main[0]]
    assert parents(w, parents(w, aux[0])[0]) == [main[0]]
    assert parents(w, parents(w, aux[1])[0]) == [aux[0]]


def test_calls_that_overlap_in_time_are_never_made_sequential(tmp_path: Path) -> None:
    w = io_weka.read(
        write(
            tmp_path,
            trace("a", [call(0, 1, [1]), call(3, 30, [1, 2]), call(5, 2, [1, 3]), call(9, 1, [1, 3, 4])]),
        )
    )
    calls = stages(w, "main")
    assert [parents(w, parents(w, s)[0]) for s in calls[1:]] == [[calls[0]], [calls[0]], [calls[2]]]


def test_a_missing_api_time_is_estimated_counted_and_never_passes_the_next_call(tmp_path: Path) -> None:
    known = [call(100 * k, 10, [1], out=100) for k in range(9)]
    w = io_weka.read(write(tmp_path, trace("a", [*known, call(1000, None, [1]), call(1003, 1, [1])])))
    assert w.provenance["calls_without_api_time"] == 1
    assert w.stage_duration_ns[-2] == 0
    w = io_weka.read(write(tmp_path, trace("a", [*known, call(1000, None, [1]), call(1040, 1, [1])])))
    assert w.stage_duration_ns[-2] == 30 * S  # 100 tokens at the median 0.1 s


def test_near_duplicate_traces_are_imported_once_and_counted(tmp_path: Path) -> None:
    def session(name: str, last_out: int) -> dict[str, Any]:
        return trace(
            name, [call(10 * k, 1, [1], out=20 + k) for k in range(5)] + [call(90, 1, [1], out=last_out)]
        )

    other = trace("other", [call(10 * k, 1, [1], out=200 + k) for k in range(6)])
    folder = write(tmp_path, session("a", 50), session("b", 60), other)
    w = io_weka.read(folder)
    assert w.workflow_names == ("a", "other")
    assert w.provenance["not_imported"] == {"near-duplicate trace": 1, "call of a near-duplicate trace": 6}
    assert io_weka.read(folder, deduplicate=False).n_workflows == 3


def test_only_the_named_traces_are_imported_and_the_others_counted(tmp_path: Path) -> None:
    folder = write(tmp_path, *(trace(n, [call(0, 1, [1], out=n_out)]) for n, n_out in (("a", 1), ("b", 2))))
    names = tmp_path / "names.txt"
    names.write_text("b\n")
    w = io_weka.read(folder, only=names)
    assert w.workflow_names == ("b",)
    assert w.provenance["not_imported"] == {"trace not asked for": 1}


def test_calls_without_a_prompt_are_counted_not_cut(tmp_path: Path) -> None:
    empty = call(5, 1, [1]) | {"in": 0}
    w = io_weka.read(write(tmp_path, trace("a", [call(0, 1, [1]), empty])))
    assert w.n_requests == 1
    assert w.provenance["not_imported"] == {"call without prompt tokens": 1}


def test_a_gzipped_file_reads_like_a_plain_one(tmp_path: Path) -> None:
    value = json.dumps(trace("a", [call(0, 1, [1]), call(4, 1, [1, 2])]))
    (tmp_path / "x.json").write_text(value)
    (tmp_path / "y.json.gz").write_bytes(gzip.compress(value.encode()))
    assert io_weka.read(tmp_path / "x.json").digest() == io_weka.read(tmp_path / "y.json.gz").digest()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "a",\n "block_size"', "t.json: not JSON at column 14 of line 2"),
        ("[1]", "t.json: got a list, expected an object"),
        (
            '{"id": "a", "block_size": 64, "request": []}',
            "field 'requests': missing; unknown field 'requests'; did",
        ),
        (
            json.dumps(trace("a", [call(0, 1, [1]) | {"in": "9"}])),
            "'requests[0].in': got a text, expected a whole number",
        ),
        (
            json.dumps(trace("a", [call(0, 1, [1]) | {"out": -1}])),
            "'requests[0].out': got -1, allowed: 0 to 2^31-1",
        ),
        (json.dumps(trace("a", [call(0, -4.0, [1])])), "'requests[0].api_time': got -4.0, expected seconds"),
        (
            json.dumps(trace("a", [call(0, 1, [1]) | {"in": 3, "hash_ids": [1, 2]}])),
            "2 blocks of 64 tokens exceed",
        ),
        (
            json.dumps(trace("a", [call(0, 1, [1]) | {"hash_ids": [True]}])),
            "'requests[0].hash_ids': expected whole",
        ),
        (json.dumps(trace("a", [{"t": 1, "type": "x"}])), "no trace with LLM calls in it"),
    ],
)
def test_malformed_traces_name_file_and_field(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InputError) as error:
        io_weka.read(tmp_path / "t.json")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_empty_folder_says_which_files_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no file named \*\.json or \*\.json\.gz"):
        io_weka.read(tmp_path)
    with pytest.raises(InputError, match="no such file or folder"):
        io_weka.read(tmp_path / "nowhere")


def test_a_folder_and_a_file_are_recognised_by_their_content(tmp_path: Path) -> None:
    folder = write(tmp_path, trace("a", [call(0, 1, [1])]))
    assert formats.sniff(folder) == formats.sniff(folder / "t0.json") == "weka"
