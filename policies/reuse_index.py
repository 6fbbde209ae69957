"""The store of finished work that reuse policies name: freshness, cascade, provenance, capacity (DynBranch C1).

Invariant: every record in the store is fresh, that is, every version that its execution read, in any of its stages,
is current. A result enters only while that holds, and a write removes all that read the key. A lookup therefore
costs one dictionary access a name, whatever the read-sets and the size of the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from policies._lazy_heap import LazyHeap
from policies.api import HostInfo, ReuseName, ReusePolicy, StageView
from policies.guards import Guards
from traces.errors import InputError, nearest

Reads = tuple[tuple[int, int], ...]
EVICTION = ("fifo", "lfu", "lru")


class Provenance(NamedTuple):
    """Who made a result: the first of its stages, and the fill if it was made early (-1: canonical work)."""

    workflow: int
    stage: int
    fill: int = -1


@dataclass(frozen=True, slots=True)
class Record:
    """A finished stage, or a finished part of a workflow: one opaque value a stage, and all versions it read."""

    values: tuple[int, ...]
    reads: Reads
    source: Provenance


class Hit(NamedTuple):
    """What a lookup found. `record` is None where the result was made before the run (the host holds it)."""

    name: ReuseName
    rank: int
    record: Record | None


class _Recording:
    """A part of a workflow in progress: what its stages gave so far."""

    __slots__ = ("count", "first", "last", "name", "reads", "values")

    def __init__(self, name: ReuseName, first: int, span: int) -> None:
        self.name, self.first, self.last = name, first, first + span
        self.count = name.stages
        self.values: dict[int, int] = {}
        self.reads: dict[int, int] = {}

    def add(self, stage: int, value: int, reads: Reads) -> bool:
        """Note a stage's result; False when it read another version of a key than an earlier stage did."""
        self.values[stage] = value
        return all(self.reads.setdefault(key, version) == version for key, version in reads)


class Keeper(Protocol):
    """Follows what the index holds, to keep it beyond the run."""

    def kept(self, name: ReuseName, record: Record) -> None:
        """A record entered."""

    def dropped(self, name: ReuseName) -> None:
        """A record left."""


class ReuseIndex:
    """Results by name, as a reuse policy names them. Methods mutate unless they say otherwise.

    prefilled   whether the host holds the results that a policy says were made before the run
    keeper      told what enters and leaves
    """

    def __init__(
        self,
        policy: ReusePolicy[Any],
        host: HostInfo,
        guards: Guards | None = None,
        *,
        prefilled: bool = True,
        keeper: Keeper | None = None,
    ) -> None:
        self.policy, self.guards = policy, guards or Guards()
        self._prefilled, self._keeper = prefilled, keeper
        self.active = policy.active()
        self._state: Any = policy.new_state(host)
        self._capacity, self._eviction = policy.limits()
        if self._eviction not in EVICTION:
            raise InputError(nearest(self._eviction, EVICTION, what="reuse eviction"))
        self._records: dict[ReuseName, Record] = {}
        self._readers: dict[int, set[ReuseName]] = {}
        self._versions: dict[int, int] = {}
        self._order: LazyHeap[ReuseName] = LazyHeap()
        self._uses: dict[ReuseName, int] = {}
        self._clock = 0
        self._recordings: dict[int, list[_Recording]] = {}
        self._names: dict[int, dict[int, Sequence[ReuseName]]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def version(self, key: int) -> int:
        """Return the current version of a resource, 0 before any write. Does not mutate."""
        return self._versions.get(key, 0)

    def fresh(self, reads: Reads) -> bool:
        """Say whether all these versions are current. Does not mutate."""
        if not self.guards.version_check:
            return True
        return all(self._versions.get(key, 0) == version for key, version in reads)

    def names(self, view: StageView) -> Sequence[ReuseName]:
        """Return the policy's names of a stage, outermost first; none for one that may serve nobody."""
        if not self.active or not view.reusable:
            return ()
        return self.policy.names(self._state, self.guards.named(view))

    def lookup(self, view: StageView, names: Sequence[ReuseName]) -> Hit | None:
        """Return the outermost finished work that serves the stage, None when there is none."""
        for rank, name in enumerate(names):
            record = self._records.get(name)
            if record is not None:
                self._touch(name)
                return Hit(name, rank, record)
            if self._was_prefilled(view, name):
                return Hit(name, rank, None)
        return None

    def demanded(self, view: StageView) -> Hit | None:
        """Canonical flow has reached the stage. Return what serves it; parts not found are recorded from now on."""
        names = self.names(view)
        if not names:
            return None
        hit = self.lookup(view, names)
        for name in names[: len(names) if hit is None else hit.rank]:
            if name.stages > 1:
                recording = _Recording(name, view.stage, _span(view, name))
                self._recordings.setdefault(view.workflow, []).append(recording)
        if hit is not None and hit.record is not None:
            numbers = range(view.stage, view.stage + hit.name.stages)
            results = tuple(zip(numbers, hit.record.values, strict=True))
            self._feed(view.workflow, results, hit.record.reads, hit.record.source)
        elif hit is None:
            self._names.setdefault(view.workflow, {})[view.stage] = names
        return hit

    def finished(self, view: StageView, value: int, source: Provenance, reads: Reads) -> None:
        """A stage has its result in canonical flow, executed or promoted, having read these versions."""
        if not self.active or not view.reusable:
            return
        names = self._names.get(view.workflow, {}).pop(view.stage, None)
        for name in self.names(view) if names is None else names:
            if name.stages == 1:
                self._store(name, Record((value,), reads, source))
        self._feed(view.workflow, ((view.stage, value),), reads, source)

    def write(self, key: int, version: int) -> list[ReuseName]:
        """A resource has a new version. Return the names of the records that read it and are gone."""
        self._versions[key] = version
        gone = sorted(self._readers.get(key, ()), key=_by_value) if self.guards.write_cascade else []
        for name in gone:
            self._remove(name)
        return gone

    def close(self, workflow: int) -> None:
        """Nothing more of the workflow will come: its unfinished recordings are dropped."""
        self._recordings.pop(workflow, None)
        self._names.pop(workflow, None)

    def stamped(self, reads: Reads) -> Reads:
        """Return the versions that a result carries: those it read. (With the guard off: those of now.)"""
        if self.guards.read_stamps:
            return reads
        return tuple((key, self._versions.get(key, 0)) for key, _ in reads)

    def check(self) -> None:
        """Raise AssertionError when the books do not add up or a record is stale. Does not mutate."""
        for name, record in self._records.items():
            assert len(record.values) == name.stages
            for key, version in record.reads:
                assert name in self._readers[key]
                assert self._versions.get(key, 0) == version, f"{name} read {key} at {version}"
        assert sum(map(len, self._readers.values())) == sum(
            len({key for key, _ in record.reads}) for record in self._records.values()
        )
        assert not self._capacity or len(self._records) <= self._capacity

    def restore(self, name: ReuseName, record: Record) -> None:
        """Take a record of an earlier run, while there is room.

        Raises ValueError where it read a resource: who knows what was written since.
        """
        if record.reads:
            raise ValueError(f"{name}: read {len(record.reads)} resources in an earlier run")
        full = self._capacity and len(self._records) >= self._capacity
        if self.active and not full and len(record.values) == name.stages:
            keeper, self._keeper = self._keeper, None  # it has it already
            self._store(name, record)
            self._keeper = keeper

    def _was_prefilled(self, view: StageView, name: ReuseName) -> bool:
        claimed = self._prefilled and self.policy.prefilled(self._state, view, name)
        return claimed and self._never_written(view, name)

    def _never_written(self, view: StageView, name: ReuseName) -> bool:
        """Say whether what was computed before the run is still what an execution would give."""
        scopes = [s for s in view.scopes if s.kind == name.scope and s.stages == name.stages]
        keys = [key for s in scopes for key in s.keys] or [key for key, _ in view.read_set]
        return all(self._versions.get(key, 0) == 0 for key in keys)

    def _feed(
        self, workflow: int, results: Sequence[tuple[int, int]], reads: Reads, source: Provenance
    ) -> None:
        open_ = self._recordings.get(workflow)
        if not open_:
            return
        left = []
        for recording in open_:
            whole = True
            for stage, value in results:
                if recording.first <= stage < recording.last:
                    whole &= recording.add(stage, value, reads)
            if not whole and self.guards.version_check:
                continue  # its stages saw two versions of a resource: no single execution gives that
            if len(recording.values) < recording.count:
                left.append(recording)
                continue
            values = tuple(recording.values[stage] for stage in sorted(recording.values))
            made = Provenance(workflow, recording.first, source.fill if len(values) == 1 else -1)
            self._store(recording.name, Record(values, tuple(recording.reads.items()), made))
        self._recordings[workflow] = left

    def _store(self, name: ReuseName, record: Record) -> None:
        if not self.fresh(record.reads):
            return
        if name in self._records:
            self._remove(name)
        self._records[name] = record
        if self._keeper is not None:
            self._keeper.kept(name, record)
        for key, _ in record.reads:
            self._readers.setdefault(key, set()).add(name)
        if self._capacity:
            self._uses[name] = 0
            self._touch(name, stored=True)
            while len(self._records) > self._capacity:
                victim = self._order.peek()
                assert victim is not None
                self._remove(victim)

    def _touch(self, name: ReuseName, *, stored: bool = False) -> None:
        if not self._capacity or (self._eviction == "fifo" and not stored):
            return
        self._clock += 1
        self._uses[name] += 1
        rank = (self._uses[name] if self._eviction == "lfu" else 0, self._clock)
        self._order.set(name.value, rank, name)

    def _remove(self, name: ReuseName) -> None:
        record = self._records.pop(name)
        if self._keeper is not None:
            self._keeper.dropped(name)
        for key, _ in record.reads:
            self._readers[key].discard(name)
        self._uses.pop(name, None)
        self._order.discard(name.value)


def _by_value(name: ReuseName) -> tuple[str, int, int]:
    return name.scope, name.value, name.stages


def _span(view: StageView, name: ReuseName) -> int:
    """Return how many stage numbers the named part spans from this stage on."""
    for scope in view.scopes:
        if scope.kind == name.scope and scope.stages == name.stages:
            return scope.span or scope.stages
    return name.stages
