"""Prompts kept as differences come back whole, wherever their workflow goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traces import draws
from traces.builder import WorkloadBuilder
from traces.resample import resample, subset
from traces.schema import Workload


def ids(*key: int, count: int) -> np.ndarray:
    return draws.bits_array(1, "test", *key, np.arange(count)).astype(np.uint32)


def conversation(workflows: int) -> tuple[Workload, list[np.ndarray]]:
    """Make workflows whose calls continue, shorten, replace or repeat what was said before."""
    b = WorkloadBuilder("talk", 16)
    prompts = []
    for w in range(workflows):
        b.workflow(f"w{w}")
        said = ids(9, count=20)
        parents: list[int] = []
        for turn in range(6):
            kind = draws.bits(1, "kind", w, turn) % 4
            prompt = (
                np.concatenate([said, ids(w, turn, count=7)]),
                said[: max(1, len(said) // 2)],
                ids(w, turn, 3, count=11),
                said,
            )[kind]
            out = ids(w, turn, 5, count=3 + turn)
            blocks = ["code" if i % 2 else "" for i in range(len(out))]
            parents = [
                b.llm(
                    len(prompt), len(out), parents=parents, agent="chat/a", output_ids=out,
                    output_blocks=blocks, prompt_ids=prompt,
                )
            ]  # fmt: skip
            prompts.append(prompt)
            said = np.concatenate([prompt, out])
    return b.build(), prompts


def prompt_of(w: Workload, stage: int) -> list[int]:
    assert w.transcript is not None
    assert w.output_ptr is not None
    assert w.output_ids is not None
    return w.transcript.prompt(stage, w.output_ptr, w.output_ids).tolist()


def test_prompts_come_back_whole_from_their_differences() -> None:
    w, prompts = conversation(4)
    assert [prompt_of(w, s) for s in range(w.n_stages)] == [p.tolist() for p in prompts]
    assert w.transcript is not None
    assert len(w.transcript.prompt_ids) < sum(map(len, prompts)) // 2


def test_a_subset_keeps_each_prompt() -> None:
    w, prompts = conversation(4)
    part = subset(w, [2, 0])
    expected = prompts[12:18] + prompts[0:6]
    assert [prompt_of(part, s) for s in range(part.n_stages)] == [p.tolist() for p in expected]


def test_a_copy_keeps_which_tokens_are_equal_and_shares_none_with_its_original() -> None:
    w, _ = conversation(3)
    twice = resample(w, 6, 0)
    assert twice.errors() == []
    names = list(twice.workflow_names)
    for i, name in enumerate(names):
        if not name.endswith("#1"):
            continue
        original = names.index(name[:-2])
        for turn in range(6):
            a, b = (np.array(prompt_of(twice, 6 * k + turn)) for k in (original, i))
            assert np.array_equal(np.unique(a, return_inverse=True)[1].shape, a.shape)
            assert np.array_equal(a[:, None] == a[None, :], b[:, None] == b[None, :])
            assert not np.intersect1d(a, b).size


def test_a_wrong_column_is_named() -> None:
    w, _ = conversation(2)
    t = w.transcript
    assert t is not None
    for changed, name in (
        (replace(t, output_block=t.output_block[:-1]), "output_block"),
        (replace(t, output_block=t.output_block + np.int8(5)), "block_names"),
        (replace(t, prompt_base=np.arange(w.n_stages, dtype=np.int32)), "prompt_base"),
        (replace(t, prompt_kept=t.prompt_kept + np.int32(1)), "prompt_kept"),
    ):
        errors = replace(w, transcript=changed).errors()
        assert errors
        assert name in errors[0]
