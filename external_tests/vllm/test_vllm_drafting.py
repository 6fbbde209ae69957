"""Drafter `ngram` and budget `batch_table` against vLLM's own proposer and schedule."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup
from vllm.v1.spec_decode.ngram_proposer import NgramProposer

from policies.api import RequestView
from policies.budgets.batch_table import BatchTable
from policies.drafters.ngram import NGram
from policies.laws import toy_host
from traces import draws

LONGEST, SEQS = 400, 6


def stream(seed: int, name: int, n: int, words: int) -> list[int]:
    out: list[int] = []
    while len(out) < n:
        bits = draws.bits(seed, "stream", name, len(out))
        if len(out) > 8 and bits % 3 == 0:
            start = (bits >> 8) % (len(out) - 4)
            out += out[start : start + 2 + (bits >> 20) % 12]
        else:
            out.append((bits >> 8) % words)
    return out[:n]


def proposer(n_min: int, n_max: int, k: int) -> NgramProposer:
    config: Any = SimpleNamespace(
        speculative_config=SimpleNamespace(
            prompt_lookup_min=n_min, prompt_lookup_max=n_max, num_speculative_tokens=k
        ),
        model_config=SimpleNamespace(max_model_len=LONGEST),
        scheduler_config=SimpleNamespace(max_num_seqs=SEQS),
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
    )
    return NgramProposer(config)


@pytest.mark.parametrize(("n_min", "n_max", "k"), [(4, 4, 5), (1, 4, 3), (2, 5, 8), (1, 1, 1)])
def test_ngram_drafts_what_vllm_s_proposer_drafts(n_min: int, n_max: int, k: int) -> None:
    theirs = proposer(n_min, n_max, k)
    ours = NGram(k=k, n_min=n_min, n_max=n_max)
    state = ours.new_state(toy_host())
    texts = [stream(n_max, r, LONGEST, 2 + r) for r in range(SEQS)]
    held = np.zeros((SEQS, LONGEST), dtype=np.int32)
    length = np.array([1 + 9 * r for r in range(SEQS)], dtype=np.int32)
    for r, text in enumerate(texts):
        held[r, : length[r]] = text[: length[r]]
        view = RequestView(r, 0, 0, 0, 0, int(length[r]))
        ours.begin(state, view, np.array(text[: length[r]], dtype=np.uint32))
    drafted = 0
    for step in range(120):
        sampled: list[list[int]] = []
        for r, text in enumerate(texts):
            n = draws.bits(1, "accepted", r, step) % 4
            new = text[length[r] : length[r] + n]
            held[r, length[r] : length[r] + n] = new
            length[r] += n
            ours.commit(state, r, np.array(new, dtype=np.uint32))
            sampled.append(new)
        want = theirs.propose(k, sampled, length, held)
        for r in range(SEQS):
            if sampled[r]:
                assert ours.propose(state, r, LONGEST - int(length[r])).tokens.tolist() == want[r]
                drafted += len(want[r])
    assert drafted > 50


@pytest.mark.parametrize("table", ["1-4:5/5-16:3/17-64:1/65-256:0", "1-2:5/9-12:2", "1-300:4"])
def test_the_table_is_vllm_s_schedule(table: str) -> None:
    host = toy_host()
    ranges = [
        (*(int(x) for x in part.split(":")[0].split("-")), int(part.split(":")[1]))
        for part in table.split("/")
    ]
    want = build_dynamic_sd_schedule_lookup([list(r) for r in ranges], host.max_num_seqs, 8)
    assert list(BatchTable(table).new_state(host))[1:] == want[1:]
