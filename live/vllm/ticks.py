"""Serve a script's requests as they overlap, one engine step a tick, and note at which tick each was sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from live.script import Script
from live.vllm.engine import Answer, Engine
from traces.draws import bits

FILE = "ticks.json"


def overlapping(
    script: Script, engine: Engine, at_once: int, pause_ticks: int, seed: int
) -> tuple[list[Answer], list[int]]:
    """Keep `at_once` workflows open; each sends its next request some ticks after its last answer. Mutates the engine.

    A tick is one step of the engine, or nothing when it has nothing to do. Pauses are drawn, 0 to `pause_ticks`.
    Returns the answers and the tick of each request, in the order of the script.
    """
    todo: dict[int, list[int]] = {}
    for i, r in enumerate(script.requests):
        todo.setdefault(r.workflow, []).append(i)
    waiting = list(todo)
    due: dict[int, int] = {}  # open workflow -> tick of its next request, -1 while one runs
    answers: dict[int, Answer] = {}
    sent = [-1] * len(script.requests)
    tick = 0
    while waiting or due:
        while waiting and len(due) < at_once:
            due[waiting.pop(0)] = tick + bits(seed, "ticks", tick, len(due)) % (pause_ticks + 1)
        for workflow in sorted(w for w, at in due.items() if 0 <= at <= tick):
            i = todo[workflow].pop(0)
            r = script.requests[i]
            sender = {"wf_id": workflow, "stage": i, "agent": r.agent, "wf_finished": int(not todo[workflow])}
            engine.send(str(i), r.prompt, len(r.output), sender)
            sent[i], due[workflow] = tick, -1
        for name, answer in engine.step():
            i = int(name)
            answers[i] = answer
            workflow = script.requests[i].workflow
            if todo[workflow]:
                due[workflow] = tick + 1 + bits(seed, "ticks", i) % (pause_ticks + 1)
            else:
                del due[workflow]
        tick += 1
    return [answers[i] for i in range(len(script.requests))], sent


def write_ticks(directory: Path, sent: Sequence[int], max_num_seqs: int, max_num_batched_tokens: int) -> None:
    """Write what a comparison needs to know of the load beside a run's tables."""
    about: dict[str, Any] = {
        "sent": list(sent), "max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens,
    }  # fmt: skip
    (directory / FILE).write_text(json.dumps(about) + "\n", encoding="utf-8")


__all__ = ["FILE", "overlapping", "write_ticks"]
