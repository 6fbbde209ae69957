from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from live.rekey import TokenPaths, serial_order
from live.script import Script, ScriptRequest, renumbered
from live.tiny.text import document
from traces import draws, workloads
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.resample import resample
from traces.schema import Workload

BLOCK = 8


def source(kind: int, id: int, n: int) -> Sequence[int]:
    return [1 + draws.bits(0, "test tokens", kind, id, i) % 500 for i in range(n)]


def hover() -> Workload:
    return resample(workloads.open("hover"), 6, 1)


def played(workload: Workload, scale: int) -> dict[int, tuple[list[int], list[int]]]:
    """Prompt and answer of each stage, answers made up."""
    paths = TokenPaths(workload, source, scale, BLOCK)
    out = {}
    for stage in serial_order(workload, 3, 0):
        prompt = paths.prompt(stage)
        answer = [900 + stage] * paths.output_tokens(stage)
        paths.answered(stage, len(prompt), answer)
        out[stage] = (prompt, answer)
    return out


def common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_prompts_that_share_an_identity_share_tokens_and_no_others() -> None:
    workload, scale = hover(), 4
    got = played(workload, scale)
    tree = workload.prefix
    for a, (prompt, _) in got.items():
        assert len(prompt) % BLOCK
        for b in got:
            if b >= a:
                continue
            shared, segment = 0, int(workload.prompt_segment[a])
            ancestors = set()
            while segment >= 0:
                ancestors.add(segment)
                segment = int(tree.parent_segment[segment])
            segment = int(workload.prompt_segment[b])
            while segment >= 0 and segment not in ancestors:
                segment = int(tree.parent_segment[segment])
            if segment >= 0:
                shared = int(tree.end_tokens[segment]) // scale
            expected = min(shared, len(prompt) - 1, len(got[b][0]) - 1)
            assert common(prompt, got[b][0]) >= expected - 1


def test_an_answer_is_found_where_a_later_prompt_contains_it() -> None:
    builder = WorkloadBuilder("two turns", hash_block_tokens=1)
    builder.workflow("w")
    ids = np.arange(100, 160, dtype=np.uint64)
    first = builder.llm(21, 12, agent="a", prompt_units=ids[:21], sequence_units=ids[:33])
    builder.llm(45, 3, parents=[first], agent="a", prompt_units=ids[:45], sequence_units=ids[:48])
    paths = TokenPaths(builder.build(), source, 1, BLOCK)
    prompt = paths.prompt(0)
    answer = list(range(1000, 1012))
    paths.answered(0, len(prompt), answer)
    second = paths.prompt(1)
    assert second[:33] == prompt + answer
    assert len(second) == 45


def test_every_stage_is_sent_once_and_in_the_order_of_its_workflow() -> None:
    workload = hover()
    order = serial_order(workload, 3, 0)
    assert sorted(order) == np.flatnonzero(workload.stage_kind == 0).tolist()
    for workflow in range(workload.n_workflows):
        mine = [s for s in order if workload.stage_workflow[s] == workflow]
        assert mine == sorted(mine)
    assert order != sorted(order), "workflows are interleaved"
    assert serial_order(workload, 3, 1) != order


def script() -> Script:
    rows = [
        ScriptRequest(w, 0, a, (1, 2, 3), (4, 5), finished=False) for w, a in ((5, "b"), (2, "a"), (5, "c"))
    ]
    return renumbered(rows, 2)


def test_a_script_comes_back_from_its_file(tmp_path: Path) -> None:
    script().save(tmp_path / "s.json")
    assert Script.open(tmp_path / "s.json") == script()
    assert script().agents == ("b", "c", "a")
    assert [r.finished for r in script().requests] == [False, True, True]


def test_a_file_that_is_no_script_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    for text in ("", "[]", "{}", '{"version": 2}', '{"version": 1, "requests": [{"x": 1}]}'):
        path.write_text(text)
        with pytest.raises(InputError, match=r"s\.json") as e:
            Script.open(path)
        assert "\n" not in str(e.value)
    good = script()
    broken = (
        replace(good, block_tokens=3),
        replace(good, agents=("a", "b", "c")),
        replace(good, requests=good.requests[::-1]),
        replace(good, requests=(replace(good.requests[0], finished=True), *good.requests[1:])),
    )
    for given in broken:
        given.save(path)
        with pytest.raises(InputError, match=r"s\.json"):
            Script.open(path)


def test_generated_text_depends_on_its_numbers_alone() -> None:
    assert document(0, 1) == document(0, 1)
    assert len({document(seed, i) for seed in range(3) for i in range(20)}) == 60
    assert '"tool"' in document(0, 1)
