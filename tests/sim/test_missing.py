"""What prefetchers are offered: kept by changes, it is what a scan of every path would find."""

from __future__ import annotations

from typing import Any

import pytest
from prefetch_cases import world_of

from policies._pbkv_prefetch import ValuePrefetcher
from policies.api import Prefetcher
from sim.kv.missing import Missing
from sim.kv.radix import Node

SEEDS = range(-20, 20)


def scanned(missing: Any) -> list[tuple[Any, ...]]:
    """Every path anew: (host node, parent, start, end, segment, readers), those of older readers first."""
    device, host, readers = missing._device, missing._host, missing._readers
    runs: dict[int, list[Any]] = {}
    for end in readers.paths():
        resident = device.find(end.segment, end.blocks)[1]
        node, matched = host.find(end.segment, end.blocks)
        if resident == end.blocks or node is None or resident >= matched:
            continue
        assert node.end == matched  # divided there, so that readers are those of whole nodes
        chain: list[Node] = []
        at: Node | None = node
        while at is not None and at.end > resident:
            chain.append(at)
            at = at.parent
        above = None
        for part in reversed(chain):
            run = runs.setdefault(
                part.id, [part.id, above, max(part.start, resident), part.end, part.segment, []]
            )
            if (end.workflow, end.agent) not in run[5]:
                run[5].append((end.workflow, end.agent))
            above = part.id
    return [tuple(run) for run in runs.values()]


@pytest.mark.parametrize("seeds", [range(s, s + 8) for s in range(-24, 16, 8)])
def test_what_is_kept_is_what_a_scan_of_all_paths_finds(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh = Missing.refresh
    seen: list[int] = []

    def spy(missing: Missing, now_ns: int) -> Any:
        out = refresh(missing, now_ns)
        kept = [
            (r.id, None if r.parent is None else r.parent.id, r.start, r.end, r.segment, r.readers)
            for r in missing.runs()
        ]
        assert kept == scanned(missing)
        for tree in (missing._device, missing._host):
            assert not tree.changed
        seen.append(len(kept))
        return out

    monkeypatch.setattr(Missing, "refresh", spy)
    for seed in seeds:
        world_of(seed).run(check=True)
    assert seeds.start >= 0 or max(seen) > 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_prefetcher_that_is_asked_by_list_writes_the_same_log(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = world_of(seed).run()[1]
    monkeypatch.setattr(ValuePrefetcher, "choose_offered", Prefetcher.choose_offered)
    listed = world_of(seed).run()[1]
    for name in kept:
        assert kept[name].equals(listed[name]), name
