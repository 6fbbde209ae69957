"""The books of the speculation controller: branch entries and fills in progress, and how they end."""

from __future__ import annotations

from heapq import heappush
from typing import Any

from policies._branch_config import BranchingConfig
from policies._branch_durations import Durations
from policies._branch_entry import Entry
from policies._branch_fills import Fill, State
from policies._branch_ledger import Ledger
from policies.api import CandidateDrafter, Gate, HostInfo
from policies.branch_events import Cancel, Command, HostLoad, Miss, Settle
from policies.reuse_index import ReuseIndex
from policies.views import LoadView, ReuseName


class Running:
    """A workflow in progress: its entries, positions of its fills by name, fills that canonical stages wait for."""

    __slots__ = ("entries", "started", "waiting")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.started: dict[ReuseName, list[tuple[Fill, int]]] = {}
        self.waiting: dict[int, Fill] = {}


class Book:
    """Everything in progress. Methods mutate and append commands to `out`, unless they say otherwise.

    pool       results of branches with several valid outcomes that nobody chose, by name
    deadlines  heap of (time_ns, fill): a joined wait to end, a pooled fill to expire
    """

    def __init__(
        self,
        gate: Gate[Any],
        candidate: CandidateDrafter[Any],
        index: ReuseIndex,
        host: HostInfo,
        config: BranchingConfig,
    ) -> None:
        budget = int(config.kv_share * host.capacity_tokens * host.replicas)
        self.ledger, self.index = Ledger(config.fills_max, budget), index
        self.gate, self.gate_state = gate, gate.new_state(host)
        self.candidate, self.candidate_state = candidate, candidate.new_state(host)
        self.entries: dict[int, Entry] = {}
        self.fills: dict[int, Fill] = {}
        self.workflows: dict[int, Running] = {}
        self.pool: dict[ReuseName, tuple[Fill, int]] = {}
        self.deadlines: list[tuple[int, int]] = []
        self.out: list[Command] = []
        self.host_load = HostLoad(0.0)
        self.durations = Durations()
        self._horizon_ns = config.horizon_ns

    def load_view(self, now_ns: int) -> LoadView:
        """Return what gates see. Does not mutate."""
        ledger, load = self.ledger, self.host_load
        return LoadView(
            now_ns, ledger.fills, ledger.kv_tokens, ledger.kv_tokens_max, load.canonical_load, ledger.fills_max,
            load.canonical_seqs,
        )  # fmt: skip

    def finish(self, fill: Fill, now_ns: int) -> None:
        """The fill runs no further: what it holds is free, what it made is a shadow."""
        fill.move("finish")
        fill.ended_ns = now_ns
        self.ledger.release(fill.id)

    def conclude(self, fill: Fill, now_ns: int) -> None:
        """End a shadow of which nothing can be demanded any more."""
        if fill.state is State.SHADOW and all(p.taken for p in fill.positions):
            fill.move("claim" if fill.promoted else "expire")
            self._ended(fill, now_ns)

    def cancel(self, fill: Fill, now_ns: int, reason: str) -> None:
        """Stop a fill at once. What was promoted of it stays promoted; the rest cannot be read from now on."""
        if fill.state is not State.SHADOW:
            fill.ended_ns = now_ns
            last = fill.positions[-1] if fill.positions else None
            if last is not None and last.value is None and fill.option.kv_tokens:
                lost = self.durations.engine_ns(last.view.fingerprint, now_ns - last.started_ns)
                fill.lost_engine_ns += lost
        fill.end = reason
        fill.move("claim" if fill.promoted and fill.state is not State.ADMITTED else "cancel")
        self.ledger.release(fill.id)
        self.out.append(Cancel(fill.id, reason))
        waiting = fill.waiting
        if waiting is not None:
            self.unwait(fill)
            if not waiting.racing:
                fill.stalled_ns += now_ns - waiting.since_ns
                self.out.append(Miss(fill.workflow, waiting.view.stage))
        self._ended(fill, now_ns)

    def expire(self, fill: Fill, now_ns: int) -> None:
        """A pooled fill's horizon has passed."""
        fill.move("expire")
        self._ended(fill, now_ns)

    def _ended(self, fill: Fill, now_ns: int) -> None:
        self.fills.pop(fill.id, None)
        started = self.workflow(fill.workflow).started if fill.workflow in self.workflows else {}
        for i, position in enumerate(fill.positions):
            there = started.get(position.name)
            if there is not None and (fill, i) in there:
                there.remove((fill, i))
                if not there:
                    del started[position.name]
            if self.pool.get(position.name) == (fill, i):
                del self.pool[position.name]
        if fill.workflow in self.workflows:
            for nested in [x for x in self.workflows[fill.workflow].entries if x.parent_fill == fill.id]:
                self.abandon(nested, now_ns, "parent")
        entry = self.entries.get(fill.entry)
        if entry is not None:
            self.try_settle(entry)

    def to_pool(self, fill: Fill, now_ns: int, reason: str) -> None:
        """Keep the results of a fill nobody chose where several outcomes are valid: another may ask for them."""
        fill.pooled, fill.end = True, reason
        for i, position in enumerate(fill.positions):
            if not position.taken:
                self.pool[position.name] = (fill, i)
        heappush(self.deadlines, (now_ns + self._horizon_ns, fill.id))

    def try_settle(self, entry: Entry) -> None:
        """Settle the entry if nothing more can happen to it."""
        # A nested branch that canonical flow may still adopt is not over when it resolves.
        if entry.id in self.entries and entry.parent_fill < 0 and entry.settles():
            self._settle(entry)

    def abandon(self, entry: Entry, now_ns: int, reason: str) -> None:
        """Nothing of the entry can matter any more, resolved or not."""
        if entry.id not in self.entries:
            return
        for fill in [f for f in entry.fills if f.live and not f.pooled]:
            self.cancel(fill, now_ns, reason)
        if entry.id in self.entries:
            self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        outcome = entry.outcome()
        del self.entries[entry.id]
        workflow = self.workflows.get(entry.branch.workflow)
        if workflow is not None:
            workflow.entries.remove(entry)
        self.gate.settle(self.gate_state, outcome)
        self.out.append(Settle(entry.id, outcome))

    def winners(self, number: int) -> list[Fill]:
        """Return the live fills of a workflow whose choice was taken. Does not mutate."""
        workflow = self.workflows.get(number)
        if workflow is None:
            return []
        entries = [x for x in workflow.entries if x.resolved_ns >= 0 and x.parent_fill < 0]
        return [f for x in entries for f in x.fills if f.live and not f.pooled and not x.chose(f.candidate)]

    def observe(self, entry: Entry) -> None:
        """Tell the candidate drafter what really happened."""
        for choice in entry.choices or ():
            self.candidate.observe(self.candidate_state, entry.branch, choice.outcome, choice.arguments)

    def unwait(self, fill: Fill) -> None:
        """No canonical stage depends on the fill any more."""
        assert fill.waiting is not None
        self.workflow(fill.workflow).waiting.pop(fill.waiting.view.stage, None)
        fill.waiting = None

    def workflow(self, number: int) -> Running:
        """Return what is known of a workflow, new if nothing is."""
        return self.workflows.setdefault(number, Running())

    def check(self) -> None:
        """Raise AssertionError when the books do not add up. Does not mutate."""
        self.ledger.check()
        self.index.check()
        holding = [f for f in self.fills.values() if f.state in (State.ADMITTED, State.RUNNING)]
        assert self.ledger.fills == len(holding)
        assert self.ledger.kv_tokens == sum(f.plan.kv_tokens for f in holding)
        assert all(f.live for f in self.fills.values())
