"""What a live run decided, read from its tables and not from the host's memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calibration.decisions import Decisions
from live.script import Content, Script, contents_of
from traces.errors import InputError
from traces.runlog import RunLog, read_run
from traces.tables import CACHE_EVENTS


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
    insert, evict, prefetch = (CACHE_EVENTS.index(e) for e in ("insert", "evict", "prefetch"))
    rows = zip(*(run.column("blocks", c).tolist() for c in ("event", "node", "blocks", "stage")), strict=True)
    for event, node, blocks, stage in rows:
        if event == insert:
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
    return Decisions(tuple(victims), tuple(hits), tuple(host_hits), tuple(prefetched))


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
