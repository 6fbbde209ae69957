"""Recorded workflows as sequences of agents: the order in which each ran its LLM calls."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.training.text import DIMS, TextStream
from traces import draws
from traces.errors import InputError
from traces.schema import StageKind, Workload


@dataclass(frozen=True)
class Sequences:
    """Workflows in the workload's order.

    names    of the workflows; a copy `NAME#2` counts as its original
    agents   names of agents
    runs     per workflow the agents' indices, -1 where the source names none
    text     per workflow float32[len(run), policies.training.text.DIMS]
    """

    names: tuple[str, ...]
    agents: tuple[str, ...]
    runs: tuple[tuple[int, ...], ...]
    text: tuple[NDArray[np.float32], ...]

    def __len__(self) -> int:
        return len(self.runs)

    def take(self, rows: Sequence[int]) -> Sequences:
        """Return the workflows at `rows`, in that order. Does not mutate."""
        return Sequences(
            tuple(self.names[i] for i in rows),
            self.agents,
            tuple(self.runs[i] for i in rows),
            tuple(self.text[i] for i in rows),
        )

    def digest(self) -> str:
        """Return a hex digest of names and runs."""
        h = hashlib.blake2b(digest_size=16)
        for name, run in zip(self.names, self.runs, strict=True):
            h.update(repr((name, run)).encode())
        return h.hexdigest()


@dataclass(frozen=True)
class Windows:
    """One row for every invocation: its prefix and what came after it. N rows.

    agents   int64[N, history]: the newest last, padded in front (and unnamed agents) with the number of agents
    text     float32[N, DIMS] of the newest invocation
    target   int64[N, horizon]: the next agents; the number of agents means END; -1 after END, and for unnamed agents
    """

    agents: NDArray[np.int64]
    text: NDArray[np.float32]
    target: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.agents)


def of_workload(workload: Workload) -> Sequences:
    """Return the sequences of a workload's workflows that have an LLM call."""
    stream = TextStream(workload)
    runs: list[list[int]] = [[] for _ in range(workload.n_workflows)]
    text: list[list[NDArray[np.float32]]] = [[] for _ in range(workload.n_workflows)]
    owner, agent = workload.stage_workflow.tolist(), workload.stage_agent.tolist()
    for stage in np.flatnonzero(workload.stage_kind == StageKind.LLM).tolist():
        runs[owner[stage]].append(agent[stage])
        text[owner[stage]].append(stream.vector(stage))
    keep = [w for w, run in enumerate(runs) if run]
    return Sequences(
        tuple(workload.workflow_names[w] for w in keep),
        workload.agents,
        tuple(tuple(runs[w]) for w in keep),
        tuple(np.array(text[w], dtype=np.float32).reshape(-1, DIMS) for w in keep),
    )


def original(name: str) -> str:
    """Return the name of the workflow that `name` is a copy of.

    >>> original("claim-7#2")
    'claim-7'
    """
    head, mark, turn = name.rpartition("#")
    return head if mark and turn.isdigit() else name


def split(names: Sequence[str], held_out: float, seed: int) -> tuple[list[int], list[int]]:
    """Return (rows to learn from, rows held out), each in a drawn order.

    Keyed by (seed, the workflow's name): the same workflow is on the same side in every file that holds
    it, and copies are on the side of their original. Raises InputError where a side would be empty.
    """
    if not 0 < held_out < 1:
        raise InputError(f"held_out={held_out}, allowed: more than 0, less than 1")
    keys = np.array([_key(original(n)) for n in names], dtype=np.int64)
    luck = draws.uniform_array(seed, "held out", keys) if len(names) else np.zeros(0)
    order = np.argsort(draws.bits_array(seed, "order", keys, np.arange(len(names))), kind="stable").tolist()
    learn = [i for i in order if luck[i] >= held_out]
    test = [i for i in order if luck[i] < held_out]
    if not learn or not test:
        raise InputError(
            f"{len(names)} workflows: held_out={held_out} leaves {len(learn)} to learn from, {len(test)} held out"
        )
    return learn, test


def windows(sequences: Sequences, history: int, horizon: int) -> Windows:
    """Return a row for every invocation of every workflow."""
    n, total = len(sequences.agents), sum(map(len, sequences.runs))
    agents = np.full((total, history), n, dtype=np.int64)
    target = np.full((total, horizon), -1, dtype=np.int64)
    row = 0
    for run in sequences.runs:
        for t in range(len(run)):
            past = run[max(0, t + 1 - history) : t + 1]
            agents[row, history - len(past) :] = [a if a >= 0 else n for a in past]
            ahead = (*run[t + 1 : t + 1 + horizon], n)[:horizon]
            target[row, : len(ahead)] = ahead
            row += 1
    text = np.concatenate(sequences.text) if sequences.text else np.zeros((0, DIMS), dtype=np.float32)
    return Windows(agents, text, target)


def _key(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1
