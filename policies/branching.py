"""The speculation controller of DynBranch, without IO: events in, commands out (sections 3.2 to 3.4).

It owns the gate, the candidate drafter, the reuse index, the ledger of reservations and every fill's state; hosts
own clocks, engines, rendering and truth. Speculation changes only time: a result is spliced into canonical flow only
under an equal name and with a fresh read-set, after its branch resolved to exactly its choice; everything else is a
miss, and nothing unpromoted can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop
from typing import Any

from policies import reuse_names
from policies._branch_book import Book
from policies._branch_config import BranchingConfig
from policies._branch_desk import Desk
from policies._branch_fills import Position, State
from policies._branch_opening import Opening
from policies.api import CandidateDrafter, Gate, HostInfo, LoadView, ReusePolicy, RunningFill
from policies.branch_events import (
    Advance,
    CanonicalDone,
    Closed,
    Command,
    Demanded,
    Drafted,
    Event,
    FillFailed,
    FillStageDone,
    FillStarted,
    Miss,
    Opened,
    Planned,
    Probed,
    Race,
    Resolved,
    RunFill,
    SkipFill,
    Ticked,
    Written,
)
from policies.guards import Guards
from policies.reuse_index import Keeper, Provenance, ReuseIndex

__all__ = ["BranchingConfig", "Controller"]


class Controller:
    """All branches of a run. `handle` mutates; events must come in the order of their times."""

    def __init__(
        self,
        gate: Gate[Any],
        candidate: CandidateDrafter[Any],
        reuse: ReusePolicy[Any],
        host: HostInfo,
        config: BranchingConfig | None = None,
        guards: Guards | None = None,
        *,
        prefilled: bool = True,
        keeper: Keeper | None = None,
    ) -> None:
        """prefilled, keeper: see `ReuseIndex`."""
        self.config = (config or BranchingConfig()).styled(gate)
        self.guards = guards or Guards()
        self.gate, self.candidate = gate, candidate
        self.index = ReuseIndex(reuse, host, self.guards, prefilled=prefilled, keeper=keeper)
        self.book = Book(gate, candidate, self.index, host, self.config)
        self.entries, self.fills, self.ledger = self.book.entries, self.book.fills, self.book.ledger
        self._durations = self.book.durations
        self._opening = Opening(self.book, self._durations, self.config)
        self._desk = Desk(self.book, self._durations, self.guards, self.config)
        self._steps: dict[type, Callable[[Any], None]] = {
            Opened: self._opening.opened, Drafted: self._opening.drafted, Planned: self._opening.planned,
            FillStarted: self._fill_started,
            FillStageDone: self._fill_stage_done, FillFailed: self._fill_failed, Resolved: self._resolved,
            Demanded: self._demanded, CanonicalDone: self._canonical_done, Written: self._written,
            Probed: self._probed, Ticked: self._ticked, Closed: self._closed,
        }  # fmt: skip

    def handle(self, event: Event) -> list[Command]:
        """Take an event; return the commands to carry out, in order. Events about what is over are ignored."""
        out: list[Command] = []
        self.book.out = out
        self._steps[type(event)](event)
        return out

    def next_deadline_ns(self) -> int | None:
        """Return when to send `Ticked` next, None when nothing waits for time. Does not mutate."""
        return self.book.deadlines[0][0] if self.book.deadlines else None

    def load_view(self, now_ns: int) -> LoadView:
        """Return what gates see. Does not mutate."""
        return self.book.load_view(now_ns)

    # --- fills ---

    def _fill_started(self, e: FillStarted) -> None:
        fill = self.fills.get(e.fill)
        if fill is None or not fill.live:
            return
        assert e.position == len(fill.positions), f"fill {e.fill}: position {e.position} out of turn"
        if not e.view.reusable:  # sampling and mutating stages run after the resolution only
            if fill.state is State.ADMITTED:
                self.book.cancel(fill, e.time_ns, "unspeculable")
            else:
                self.book.finish(fill, e.time_ns)
            return
        if fill.state is State.ADMITTED:
            fill.move("start")
        name = reuse_names.of_stage(self.guards.named(e.view))
        fill.positions.append(Position(e.view, name, e.time_ns, e.view.read_set))
        self.book.workflow(fill.workflow).started.setdefault(name, []).append((fill, e.position))
        hit = self.index.lookup(e.view, self.index.names(e.view))
        if hit is not None and hit.record is not None:
            fill.positions[-1].skipped = True
            self.book.out.append(SkipFill(e.fill, e.position, hit.record.values[0]))
        else:
            self.book.out.append(RunFill(e.fill, e.position))

    def _fill_stage_done(self, e: FillStageDone) -> None:
        fill = self.fills.get(e.fill)
        if fill is None or fill.state is not State.RUNNING:
            return
        at = fill.positions[e.position]
        assert at.value is None, f"fill {e.fill}: position {e.position} done twice"
        at.value, at.exec_ns, at.engine_ns = e.value, e.time_ns - at.started_ns, e.engine_ns
        at.reads = self.index.stamped(at.reads)
        if not at.skipped:
            self._durations.learn(at.view.fingerprint, at.exec_ns)
            self._durations.learn_engine(at.view.fingerprint, at.exec_ns, e.engine_ns)
        waiting = fill.waiting
        if waiting is not None:
            # Canonical flow has caught up: there is no window left to run further ahead in.
            self.book.finish(fill, e.time_ns)
            self.book.unwait(fill)
            waited = e.time_ns - waiting.since_ns
            fill.stalled_ns += 0 if waiting.racing else waited
            if not self._desk.claim(fill, e.position, waiting.view, e.time_ns, waited) and not waiting.racing:
                self.book.out.append(Miss(fill.workflow, waiting.view.stage))
        elif e.position + 1 < len(fill.plan.stages):
            self.book.out.append(Advance(e.fill, e.position + 1))
        else:
            self.book.finish(fill, e.time_ns)
            self.book.conclude(fill, e.time_ns)

    def _fill_failed(self, e: FillFailed) -> None:
        fill = self.fills.get(e.fill)
        if fill is None or not fill.live:
            return
        fill.lost_engine_ns += e.engine_ns
        if fill.positions and fill.positions[-1].value is None:
            fill.positions.pop()
        self.book.cancel(fill, e.time_ns, "failed")

    # --- resolution ---

    def _resolved(self, e: Resolved) -> None:
        entry = self.entries.get(e.entry)
        if entry is None or entry.resolved_ns >= 0:
            return
        entry.choices, entry.resolved_ns = e.choices, e.time_ns
        entry.refused.clear()
        if entry.parent_fill < 0:
            self.book.observe(entry)
        for fill in [f for f in entry.fills if f.live]:
            reason = entry.chose(fill.candidate)
            fill.selected = reason != "unselected"
            if not reason:
                continue
            if entry.exclusive or fill.state is not State.SHADOW or not self.index.active:
                if self.guards.loser_deletion:
                    self.book.cancel(fill, e.time_ns, reason)
            else:
                self.book.to_pool(fill, e.time_ns, reason)
        self.book.try_settle(entry)

    # --- canonical flow ---

    def _demanded(self, e: Demanded) -> None:
        if self._desk.demanded(e):
            self._revoke(e.time_ns)

    def _canonical_done(self, e: CanonicalDone) -> None:
        workflow = self.book.workflows.get(e.view.workflow)
        fill = workflow.waiting.get(e.view.stage) if workflow is not None else None
        if fill is not None:
            self.book.cancel(fill, e.time_ns, "late")
        if e.exec_ns > 0:
            self._durations.learn(e.view.fingerprint, e.exec_ns)
        source = Provenance(e.view.workflow, e.view.stage)
        self.index.finished(e.view, e.value, source, self.index.stamped(e.view.read_set))

    # --- time, load, writes, ends ---

    def _written(self, e: Written) -> None:
        self.index.write(e.key, e.version)

    def _probed(self, e: Probed) -> None:
        self.book.host_load = e.load
        self.book.gate.probe(self.book.gate_state, self.book.load_view(e.time_ns))
        self._revoke(e.time_ns)
        if self.config.readmit:
            for entry in list(self.entries.values()):
                if entry.resolved_ns < 0:
                    self._opening.admit(entry, e.time_ns)

    def _revoke(self, now_ns: int) -> None:
        if not self.book.gate.revokes():
            return
        fills = [f for f in self.fills.values() if f.state in (State.ADMITTED, State.RUNNING)]
        running = [
            RunningFill(
                self.entries[f.entry].branch, f.candidate, f.launched_ns, f.plan.kv_tokens,
                self.entries[f.entry].resolved_ns >= 0,
            )
            for f in fills
        ]  # fmt: skip
        for row in self.book.gate.revoke(self.book.gate_state, running, self.book.load_view(now_ns)):
            if fills[row].live:  # it may have been nested in one just stopped
                self.book.cancel(fills[row], now_ns, "revoked")

    def _ticked(self, e: Ticked) -> None:
        while self.book.deadlines and self.book.deadlines[0][0] <= e.time_ns:
            when, number = heappop(self.book.deadlines)
            fill = self.fills.get(number)
            if fill is None:
                continue
            if fill.pooled:
                self.book.expire(fill, e.time_ns)
            elif fill.waiting is not None and fill.waiting.deadline_ns == when:
                fill.waiting.racing, fill.waiting.deadline_ns = True, None
                fill.stalled_ns += e.time_ns - fill.waiting.since_ns
                self.book.out.append(Race(fill.workflow, fill.waiting.view.stage, fill.id))

    def _closed(self, e: Closed) -> None:
        workflow = self.book.workflows.get(e.workflow)
        if workflow is not None:
            for entry in list(workflow.entries):
                self.book.abandon(entry, e.time_ns, "closed")
            del self.book.workflows[e.workflow]
        self.index.close(e.workflow)

    def check(self) -> None:
        """Raise AssertionError when the books do not add up. Does not mutate."""
        self.book.check()
