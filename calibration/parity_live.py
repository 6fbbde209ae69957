"""What a live run decided, read from its tables and not from the host's memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibration.decisions import STEP_COLUMNS, Decisions, Load
from live.script import Content, Script, contents_of
from live.vllm.ticks import FILE
from traces.errors import InputError
from traces.runlog import RunLog, read_run
from traces.tables import CACHE_EVENTS

_PREEMPT = -1  # among cache events


def live_decisions(script: Script, live: Path) -> Decisions:
    """Read what a live run decided from its tables: who was inserted below which hit, and left when."""
    run = read_run(live)
    hits, host_hits = [-1] * len(script.requests), [0] * len(script.requests)
    columns = (run.column("requests", c).tolist() for c in ("stage", "gpu_hit_tokens", "host_hit_tokens"))
    for stage, hit, host_hit in zip(*columns, strict=True):
        if not 0 <= stage < len(hits):
            raise InputError(f"{live}: stage {stage} is not in the script")
        hits[stage], host_hits[stage] = hit, host_hit
    if -1 in hits:
        raise InputError(f"{live}: request {hits.index(-1)} of the script is missing; another script?")
    contents = [contents_of([*r.prompt, *r.output], script.block_tokens) for r in script.requests]
    filled = [hit // script.block_tokens for hit in hits]  # blocks of each request that are known by now
    named = _named(run)
    of_node: dict[int, Content] = {}
    of_name: dict[int, Content] = {}
    victims, prefetched = [], []
    hit_, insert, evict, prefetch = (CACHE_EVENTS.index(e) for e in ("hit", "insert", "evict", "prefetch"))
    rows = [
        *zip(
            *(run.column("blocks", c).tolist() for c in ("time_ns", "event", "node", "blocks", "stage")),
            strict=True,
        ),
        *((time, _PREEMPT, -1, 0, stage) for time, stage in _preempted(run)),
    ]
    for _, event, node, blocks, stage in sorted(rows, key=lambda row: row[0]):
        if event == _PREEMPT:
            filled[stage] = 0
        elif event == hit_:
            filled[stage] = blocks
        elif event == insert:
            start = filled[stage]
            filled[stage] += blocks
            for i in range(blocks):
                id = node - blocks + 1 + i
                of_node[id] = contents[stage][start + i]
                of_name[named.get(id, -1)] = of_node[id]
        elif event == prefetch:
            of_node[node] = of_name[named[node]]
            prefetched.append(of_node[node])
        elif event == evict:
            victims.append(of_node.pop(node))
    steps = tuple(zip(*(run.column("steps", c).tolist() for c in STEP_COLUMNS), strict=True))
    return Decisions(tuple(victims), tuple(hits), tuple(host_hits), tuple(prefetched), steps)


def _preempted(run: RunLog) -> list[tuple[int, int]]:
    """Return (time, stage) of every preemption: the request begins again with what is cached by then."""
    at = run.select("decisions", "family", "engine") & run.select("decisions", "action", "preempt")
    time, stage = run.columns("decisions", "time_ns", "stage")
    return list(zip(time[at].tolist(), stage[at].tolist(), strict=True))


def load_of(live: Path) -> Load:
    """Return how the requests of a live run were sent. Raises InputError where the file says nothing sensible."""
    path = live / FILE
    if not path.is_file():
        return Load()
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        sent = tuple(int(tick) for tick in given["sent"])
        return Load(sent, int(given["max_num_seqs"]), int(given["max_num_batched_tokens"]))
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise InputError(f"{path}: no ticks: {type(e).__name__}: {e}") from e


def drafting_of(live: Path) -> dict[str, Any] | None:
    """Return what a live run's drafter host wrote; None for a run without one."""
    path = live / "drafting.json"
    if not path.is_file():
        return None
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def answered(script: Script, live: Path) -> Script:
    """Return the script with the answers that the live run gave, as it wrote them; as it is where there are none."""
    path = live / "outputs.json"
    if not path.is_file():
        return script
    answers = json.loads(path.read_text(encoding="utf-8"))
    pairs = zip(script.requests, answers, strict=True)
    return replace(script, requests=tuple(replace(r, output=tuple(a[0])) for r, a in pairs))


def _named(run: RunLog) -> dict[int, int]:
    """Return the content's number of each node of the pool, which a host with a host tier writes down."""
    at = run.select("decisions", "family", "pool") & run.select("decisions", "action", "content")
    node, name = run.columns("decisions", "stage", "value")
    return dict(zip(node[at].tolist(), name[at].tolist(), strict=True))


def about_run(live: Path) -> dict[str, Any]:
    """Return a live run's `live.json`. Raises InputError where there is none."""
    try:
        value: dict[str, Any] = json.loads((live / "live.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise InputError(f"{live}: no live run: {e}") from e
    return value
