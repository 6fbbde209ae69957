"""The speculation controller of DynBranch, without IO: events in, commands out (sections 3.2 to 3.4).

It owns the gate, the candidate drafter, the reuse index, the ledger of reservations and every fill's state; hosts
own clocks, engines, rendering and truth. Speculation changes only time: a result is spliced into canonical flow only
under an equal name and with a fresh read-set, after its branch resolved to exactly its choice; everything else is a
miss, and nothing unpromoted can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

from policies import reuse_names
from policies._branch_entry import Entry
from policies._branch_fills import Fill, Position, State, Waiting
from policies._branch_ledger import Ledger
from policies.api import (
    Candidate,
    CandidateDrafter,
    FillOption,
    Gate,
    HostInfo,
    LoadView,
    ReusePolicy,
    RunningFill,
)
from policies.branch_events import (
    Adopt,
    Advance,
    Cancel,
    CanonicalDone,
    Closed,
    Command,
    Demanded,
    Draft,
    Drafted,
    Event,
    FillFailed,
    FillPlan,
    FillStageDone,
    FillStarted,
    HostLoad,
    Join,
    Launch,
    Miss,
    Opened,
    Plan,
    Planned,
    Probed,
    Promote,
    Race,
    Resolved,
    RunFill,
    Serve,
    Settle,
    SkipFill,
    Ticked,
    Written,
)
from policies.guards import Guards
from policies.reuse_index import Provenance, ReuseIndex
from policies.views import ReuseName, StageView
from traces.errors import InputError, nearest

CHOICES = {
    "demand": ("join", "race", "drop"),
    "priority": ("equal", "low"),
    "routing": ("other", "affine"),
}  # fmt: skip


@dataclass(frozen=True)
class BranchingConfig:
    """How speculation is carried out, whatever the gate decides.

    candidates      most candidates drafted a branch
    fills_max       slots: fills in flight, over all replicas
    kv_share        share of the KV pool, over all replicas, that fills may reserve (Fig. 5b's range)
    demand          what a demand on a running fill does: join (wait, at most as long as the stage would take),
                    race (execute too, first one wins), drop (cancel the fill)
    depth           cycles of nested branches that may run ahead
    priority        of fills in the engine: equal (and not preemptible) or low
    routing         of fills: other worker than the workflow's, or affine to its prefix
    horizon_ns      how long results of branches with several valid outcomes wait for another taker
    readmit         ask the gate again at every probe while the window is open
    """

    candidates: int = 4
    fills_max: int = 8
    kv_share: float = 0.25
    demand: str = "join"
    depth: int = 1
    priority: str = "equal"
    routing: str = "other"
    horizon_ns: int = 60_000_000_000
    readmit: bool = False

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InputError(nearest(getattr(self, name), allowed, what=f"branching.{name}"))
        for name in ("candidates", "fills_max", "depth", "horizon_ns"):
            if getattr(self, name) < 0:
                raise InputError(f"branching.{name}={getattr(self, name)}: expected at least 0")
        if not 0 <= self.kv_share <= 1:
            raise InputError(f"branching.kv_share={self.kv_share}: expected a share in [0, 1]")

    def styled(self, gate: Gate[Any]) -> BranchingConfig:
        """Return the config with what the gate's system fixes."""
        fixed: dict[str, Any] = dict(gate.style)
        return replace(self, **fixed)


class _Workflow:
    """What the controller knows of a workflow in progress."""

    __slots__ = ("entries", "started", "waiting")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.started: dict[ReuseName, list[tuple[Fill, int]]] = {}
        self.waiting: dict[int, Fill] = {}


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
    ) -> None:
        self.config = (config or BranchingConfig()).styled(gate)
        self.guards = guards or Guards()
        self.index = ReuseIndex(reuse, host, self.guards)
        budget = int(self.config.kv_share * host.capacity_tokens * host.replicas)
        self.ledger = Ledger(self.config.fills_max, budget)
        self.gate, self.candidate = gate, candidate
        self._gate_state: Any = gate.new_state(host)
        self._candidate_state: Any = candidate.new_state(host)
        self.entries: dict[int, Entry] = {}
        self.fills: dict[int, Fill] = {}
        self._next_fill = 0
        self._workflows: dict[int, _Workflow] = {}
        self._pool: dict[ReuseName, tuple[Fill, int]] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._exec_ns: dict[int, tuple[int, int]] = {}
        self._load = HostLoad(0.0)
        self._out: list[Command] = []
        self._steps: dict[type, Callable[[Any], None]] = {
            Opened: self._opened, Drafted: self._drafted, Planned: self._planned, FillStarted: self._fill_started,
            FillStageDone: self._fill_stage_done, FillFailed: self._fill_failed, Resolved: self._resolved,
            Demanded: self._demanded, CanonicalDone: self._canonical_done, Written: self._written,
            Probed: self._probed, Ticked: self._ticked, Closed: self._closed,
        }  # fmt: skip

    def handle(self, event: Event) -> list[Command]:
        """Take an event; return the commands to carry out, in order. Events about what is over are ignored."""
        self._out = []
        self._steps[type(event)](event)
        return self._out

    def next_deadline_ns(self) -> int | None:
        """Return when to send `Ticked` next, None when nothing waits for time. Does not mutate."""
        return self._deadlines[0][0] if self._deadlines else None

    def load_view(self, now_ns: int) -> LoadView:
        """Return what gates see. Does not mutate."""
        ledger, load = self.ledger, self._load
        return LoadView(
            now_ns, ledger.fills, ledger.kv_tokens, ledger.kv_tokens_max, load.canonical_load, ledger.fills_max,
            load.canonical_seqs,
        )  # fmt: skip

    # --- opening ---

    def _opened(self, e: Opened) -> None:
        self._load = e.load
        load = self.load_view(e.time_ns)
        depth, limit = 1, self.config.depth
        if e.parent_fill >= 0:
            parent = self.fills.get(e.parent_fill)
            if parent is None or not parent.live:
                return
            above = self.entries[parent.entry]
            depth, limit = above.depth + 1, above.depth_limit
            if depth > limit:
                return
        own = self.gate.depth(self._gate_state, e.branch)
        if own is not None and e.parent_fill < 0:
            limit = min(limit, own)
        entry = Entry(e.entry, e.branch, load, e.exclusive, e.parent_fill, depth, limit)
        assert e.entry not in self.entries, f"entry {e.entry} opened twice"
        self.entries[e.entry] = entry
        self._workflow(e.branch.workflow).entries.append(entry)
        if depth <= limit and self.gate.open(self._gate_state, e.branch, load):
            entry.opened = entry.drafting = True
            limit = self.config.candidates
            cost = self.candidate.cost_ns(self._candidate_state, e.branch, limit)
            self._out.append(Draft(e.entry, limit, cost))

    def _drafted(self, e: Drafted) -> None:
        entry = self.entries.get(e.entry)
        if entry is None or not entry.drafting:
            return
        entry.drafting = False
        entry.setup_ns += e.setup_ns
        if entry.resolved_ns >= 0:  # too late: drafting is paid for all the same (reading D8)
            self._try_settle(entry)
            return
        branch = entry.branch if e.branch is None else e.branch
        got = self.candidate.propose(self._candidate_state, branch, self.config.candidates)
        entry.candidates = tuple(got)
        if got:
            entry.planning = True
            self._out.append(Plan(e.entry, entry.candidates))

    def _planned(self, e: Planned) -> None:
        entry = self.entries.get(e.entry)
        if entry is None or not entry.planning:
            return
        entry.planning = False
        self._load = e.load
        if entry.resolved_ns >= 0:
            self._try_settle(entry)
            return
        plans = zip(entry.candidates, e.plans, strict=True)
        entry.refused = {c.rank: plan for c, plan in plans if plan is not None and plan.stages}
        self._admit(entry, e.time_ns)

    def _admit(self, entry: Entry, now_ns: int) -> None:
        """Ask the gate about what is not filled yet, and launch what it admits and the ledger can hold."""
        ranks = sorted(entry.refused)
        if not ranks:
            return
        load = self.load_view(now_ns)
        options = [self._option(entry.candidates[rank], entry.refused[rank]) for rank in ranks]
        admission = self.gate.admit(self._gate_state, entry.branch, options, load)
        for row in admission.rows:
            plan, option = entry.refused[ranks[row]], options[row]
            if not self.ledger.reserve(self._next_fill, plan.kv_tokens):
                continue
            del entry.refused[ranks[row]]
            audit = row in admission.audits
            fill = Fill(
                self._next_fill,
                entry.id,
                entry.branch.workflow,
                option.candidate,
                plan,
                option,
                load,
                now_ns,
                audit,
            )
            self._next_fill += 1
            fill.move("reserve")
            self.fills[fill.id] = fill
            entry.fills.append(fill)
            config = self.config
            self._out.append(
                Launch(entry.id, fill.id, option.candidate, plan, config.priority, config.routing)
            )

    def _option(self, candidate: Candidate, plan: FillPlan) -> FillOption:
        exec_ns = [self._mean_exec_ns(key) for key in plan.keys]
        known = sum(exec_ns) if all(exec_ns) else 0
        return FillOption(
            candidate, plan.keys[0], len(plan.stages), plan.kv_tokens, plan.prompt_tokens, known
        )

    # --- fills ---

    def _fill_started(self, e: FillStarted) -> None:
        fill = self.fills.get(e.fill)
        if fill is None or not fill.live:
            return
        assert e.position == len(fill.positions), f"fill {e.fill}: position {e.position} out of turn"
        if not e.view.reusable:  # sampling and mutating stages run after the resolution only
            if fill.state is State.ADMITTED:
                self._cancel(fill, e.time_ns, "unspeculable")
            else:
                self._finish(fill, e.time_ns)
            return
        if fill.state is State.ADMITTED:
            fill.move("start")
        name = reuse_names.of_stage(self.guards.named(e.view))
        fill.positions.append(Position(e.view, name, e.time_ns, e.view.read_set))
        self._workflow(fill.workflow).started.setdefault(name, []).append((fill, e.position))
        hit = self.index.lookup(e.view, self.index.names(e.view))
        if hit is not None and hit.record is not None:
            self._out.append(SkipFill(e.fill, e.position, hit.record.values[0]))
        else:
            self._out.append(RunFill(e.fill, e.position))

    def _fill_stage_done(self, e: FillStageDone) -> None:
        fill = self.fills.get(e.fill)
        if fill is None or fill.state is not State.RUNNING:
            return
        at = fill.positions[e.position]
        assert at.value is None, f"fill {e.fill}: position {e.position} done twice"
        at.value, at.exec_ns, at.engine_ns = e.value, e.time_ns - at.started_ns, e.engine_ns
        at.reads = self.index.stamped(at.reads)
        self._learn(at.view.fingerprint, at.exec_ns)
        waiting = fill.waiting
        if waiting is not None:
            # Canonical flow has caught up: there is no window left to run further ahead in.
            self._finish(fill, e.time_ns)
            self._unwait(fill)
            stall = 0 if waiting.racing else e.time_ns - waiting.since_ns
            if not self._claim(fill, e.position, waiting.view, e.time_ns, stall) and not waiting.racing:
                self._out.append(Miss(fill.workflow, waiting.view.stage))
        elif e.position + 1 < len(fill.plan.stages):
            self._out.append(Advance(e.fill, e.position + 1))
        else:
            self._finish(fill, e.time_ns)
            self._conclude(fill, e.time_ns)

    def _fill_failed(self, e: FillFailed) -> None:
        fill = self.fills.get(e.fill)
        if fill is None or not fill.live:
            return
        fill.lost_engine_ns += e.engine_ns
        if fill.positions and fill.positions[-1].value is None:
            fill.positions.pop()
        self._cancel(fill, e.time_ns, "failed")

    def _finish(self, fill: Fill, now_ns: int) -> None:
        """The fill runs no further: what it holds is free, what it made is a shadow."""
        fill.move("finish")
        fill.ended_ns = now_ns
        self.ledger.release(fill.id)

    def _conclude(self, fill: Fill, now_ns: int) -> None:
        """End a shadow of which nothing can be demanded any more."""
        if fill.state is State.SHADOW and all(p.taken for p in fill.positions):
            fill.move("claim" if fill.promoted else "expire")
            self._ended(fill, now_ns)

    def _cancel(self, fill: Fill, now_ns: int, reason: str) -> None:
        """Stop a fill at once. What was promoted of it stays promoted; the rest cannot be read from now on."""
        if fill.state is not State.SHADOW:
            fill.ended_ns = now_ns
            last = fill.positions[-1] if fill.positions else None
            if last is not None and last.value is None and fill.option.kv_tokens:
                fill.lost_engine_ns += now_ns - last.started_ns
        fill.end = reason
        fill.move("claim" if fill.promoted and fill.state is not State.ADMITTED else "cancel")
        self.ledger.release(fill.id)
        self._out.append(Cancel(fill.id, reason))
        waiting = fill.waiting
        if waiting is not None:
            self._unwait(fill)
            if not waiting.racing:
                fill.stalled_ns += now_ns - waiting.since_ns
                self._out.append(Miss(fill.workflow, waiting.view.stage))
        self._ended(fill, now_ns)

    def _ended(self, fill: Fill, now_ns: int) -> None:
        self.fills.pop(fill.id, None)
        started = self._workflow(fill.workflow).started if fill.workflow in self._workflows else {}
        for i, position in enumerate(fill.positions):
            there = started.get(position.name)
            if there is not None and (fill, i) in there:
                there.remove((fill, i))
                if not there:
                    del started[position.name]
            if self._pool.get(position.name) == (fill, i):
                del self._pool[position.name]
        if fill.workflow in self._workflows:
            for nested in [x for x in self._workflows[fill.workflow].entries if x.parent_fill == fill.id]:
                self._abandon(nested, now_ns, "parent")
        entry = self.entries.get(fill.entry)
        if entry is not None:
            self._try_settle(entry)

    # --- resolution ---

    def _resolved(self, e: Resolved) -> None:
        entry = self.entries.get(e.entry)
        if entry is None or entry.resolved_ns >= 0:
            return
        entry.choices, entry.resolved_ns = e.choices, e.time_ns
        entry.refused.clear()
        if entry.parent_fill < 0:
            self._observe(entry)
        for fill in [f for f in entry.fills if f.live]:
            reason = entry.chose(fill.candidate)
            fill.selected = reason != "unselected"
            if not reason:
                continue
            if entry.exclusive or fill.state is not State.SHADOW or not self.index.active:
                if self.guards.loser_deletion:
                    self._cancel(fill, e.time_ns, reason)
            else:
                self._to_pool(fill, e.time_ns, reason)
        self._try_settle(entry)

    def _observe(self, entry: Entry) -> None:
        for choice in entry.choices or ():
            self.candidate.observe(self._candidate_state, entry.branch, choice.outcome, choice.arguments)

    def _to_pool(self, fill: Fill, now_ns: int, reason: str) -> None:
        """Keep the results of a fill nobody chose where several outcomes are valid: another may ask for them."""
        fill.pooled, fill.end = True, reason
        for i, position in enumerate(fill.positions):
            if not position.taken:
                self._pool[position.name] = (fill, i)
        heappush(self._deadlines, (now_ns + self.config.horizon_ns, fill.id))

    def _try_settle(self, entry: Entry) -> None:
        # A nested branch that canonical flow may still adopt is not over when it resolves.
        if entry.id in self.entries and entry.parent_fill < 0 and entry.settles():
            self._settle(entry)

    def _abandon(self, entry: Entry, now_ns: int, reason: str) -> None:
        """Nothing of the entry can matter any more, resolved or not."""
        if entry.id not in self.entries:
            return
        for fill in [f for f in entry.fills if f.live and not f.pooled]:
            self._cancel(fill, now_ns, reason)
        if entry.id in self.entries:
            self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        outcome = entry.outcome()
        del self.entries[entry.id]
        workflow = self._workflows.get(entry.branch.workflow)
        if workflow is not None:
            workflow.entries.remove(entry)
        self.gate.settle(self._gate_state, outcome)
        self._out.append(Settle(entry.id, outcome))

    # --- demand ---

    def _demanded(self, e: Demanded) -> None:
        view, now_ns = e.view, e.time_ns
        hit = self.index.demanded(view)
        if hit is not None:
            values = hit.record.values if hit.record is not None else ()
            self._out.append(Serve(view.workflow, view.stage, values, hit.name, hit.rank))
            self._superseded(view, hit.name.stages, now_ns)
            return
        fill, position = self._find(view, e.entry)
        if fill is None:
            self._out.append(Miss(view.workflow, view.stage))
            self._too_late(view, now_ns)
            self._revoke(now_ns)
        elif fill.positions[position].value is not None:
            if not self._claim(fill, position, view, now_ns, 0):
                self._out.append(Miss(view.workflow, view.stage))
        elif self.config.demand == "drop":
            self._cancel(fill, now_ns, "late")
            self._out.append(Miss(view.workflow, view.stage))
        else:
            self._wait(fill, position, view, now_ns)

    def _find(self, view: StageView, entry_id: int) -> tuple[Fill | None, int]:
        """Return the fill that holds or makes this stage's result under an equal name, and the position."""
        workflow = self._workflows.get(view.workflow)
        if not view.reusable or (workflow is None and not self._pool):
            return None, 0
        name = reuse_names.of_stage(self.guards.named(view))
        for fill, position in workflow.started.get(name, ()) if workflow is not None else ():
            entry = self.entries.get(fill.entry)
            if entry is None or entry.resolved_ns < 0 or entry.parent_fill >= 0:
                continue
            if not self.index.active and fill.entry != entry_id:
                continue  # reading D11: without reuse a promotion serves the launching branch only
            if fill.live and not fill.positions[position].taken and fill.waiting is None:
                return fill, position
        return self._pool.get(name, (None, 0))

    def _claim(self, fill: Fill, position: int, view: StageView, now_ns: int, stall_ns: int) -> bool:
        """Promote a finished stage of a fill if all it read is still current; else it is a miss and the fill ends."""
        at = fill.positions[position]
        assert at.value is not None
        at.taken = True
        if not self.index.fresh(at.reads):
            if fill.live:
                self._cancel(fill, now_ns, "stale")
            return False
        at.promoted = True
        fill.promoted += 1
        fill.saved_ns += max(at.exec_ns - stall_ns, 0)
        fill.stalled_ns += stall_ns
        source = Provenance(view.workflow, view.stage, fill.id)
        self.index.finished(view, at.value, source, at.reads)
        self._out.append(Promote(view.workflow, view.stage, fill.id, position, at.value))
        self._adopt(fill, position)
        self._conclude(fill, now_ns)
        return True

    def _adopt(self, fill: Fill, position: int) -> None:
        workflow = self._workflows.get(fill.workflow)
        stage = fill.plan.stages[position]
        for entry in list(workflow.entries) if workflow is not None else ():
            if entry.parent_fill == fill.id and entry.branch.stage == stage:
                entry.parent_fill = -1
                self._out.append(Adopt(entry.id, fill.workflow, stage))
                self._observe(entry)
                self._try_settle(entry)

    def _wait(self, fill: Fill, position: int, view: StageView, now_ns: int) -> None:
        """A demand on a running fill: wait for it at most as long as the stage itself would take, or race it."""
        mean = self._mean_exec_ns(view.fingerprint)
        elapsed = now_ns - fill.positions[position].started_ns
        # A fill that runs for twice the mean is not expected to end sooner than a fresh execution would.
        racing = self.config.demand == "race" or (mean > 0 and elapsed >= 2 * mean)
        deadline = now_ns + mean if mean > 0 and not racing else None
        fill.waiting = Waiting(view, now_ns, position, racing, deadline)
        self._workflow(fill.workflow).waiting[view.stage] = fill
        if deadline is not None:
            heappush(self._deadlines, (deadline, fill.id))
        self._out.append((Race if racing else Join)(view.workflow, view.stage, fill.id))

    def _unwait(self, fill: Fill) -> None:
        assert fill.waiting is not None
        self._workflow(fill.workflow).waiting.pop(fill.waiting.view.stage, None)
        fill.waiting = None

    def _superseded(self, view: StageView, stages: int, now_ns: int) -> None:
        """Finished work served the stages: what fills make of them is not needed."""
        scope = next((s for s in view.scopes if s.stages == stages), None)
        last = view.stage + (scope.span or scope.stages if scope is not None and stages > 1 else stages)
        for fill in self._winners(view.workflow):
            covered = [i for i, stage in enumerate(fill.plan.stages) if view.stage <= stage < last]
            if not covered:
                continue
            for i in covered:
                if i < len(fill.positions):
                    fill.positions[i].taken = True
            if fill.state is State.SHADOW:
                fill.end = "served"
                self._conclude(fill, now_ns)
            elif covered[-1] >= len(fill.positions) - 1:
                self._cancel(fill, now_ns, "served")

    def _too_late(self, view: StageView, now_ns: int) -> None:
        """The stage executes: a chosen fill that did not get to it, or rendered another input, has no use left."""
        for fill in self._winners(view.workflow):
            if view.stage in fill.plan.stages:
                position = fill.plan.stages.index(view.stage)
                if position >= len(fill.positions):
                    self._cancel(fill, now_ns, "late")
                elif fill.waiting is None:
                    self._cancel(fill, now_ns, "wrong argument")

    def _winners(self, number: int) -> list[Fill]:
        workflow = self._workflows.get(number)
        if workflow is None:
            return []
        entries = [x for x in workflow.entries if x.resolved_ns >= 0 and x.parent_fill < 0]
        return [f for x in entries for f in x.fills if f.live and not f.pooled and not x.chose(f.candidate)]

    def _canonical_done(self, e: CanonicalDone) -> None:
        workflow = self._workflows.get(e.view.workflow)
        fill = workflow.waiting.get(e.view.stage) if workflow is not None else None
        if fill is not None:
            self._cancel(fill, e.time_ns, "late")
        if e.exec_ns > 0:
            self._learn(e.view.fingerprint, e.exec_ns)
        source = Provenance(e.view.workflow, e.view.stage)
        self.index.finished(e.view, e.value, source, self.index.stamped(e.view.read_set))

    # --- time, load, writes, ends ---

    def _written(self, e: Written) -> None:
        self.index.write(e.key, e.version)

    def _probed(self, e: Probed) -> None:
        self._load = e.load
        self.gate.probe(self._gate_state, self.load_view(e.time_ns))
        self._revoke(e.time_ns)
        if self.config.readmit:
            for entry in list(self.entries.values()):
                if entry.resolved_ns < 0:
                    self._admit(entry, e.time_ns)

    def _revoke(self, now_ns: int) -> None:
        if not self.gate.revokes():
            return
        fills = [f for f in self.fills.values() if f.state in (State.ADMITTED, State.RUNNING)]
        running = [
            RunningFill(
                self.entries[f.entry].branch, f.candidate, f.launched_ns, f.plan.kv_tokens,
                self.entries[f.entry].resolved_ns >= 0,
            )
            for f in fills
        ]  # fmt: skip
        for row in self.gate.revoke(self._gate_state, running, self.load_view(now_ns)):
            if fills[row].live:  # not one that went with a fill it was nested in
                self._cancel(fills[row], now_ns, "revoked")

    def _ticked(self, e: Ticked) -> None:
        while self._deadlines and self._deadlines[0][0] <= e.time_ns:
            when, number = heappop(self._deadlines)
            fill = self.fills.get(number)
            if fill is None:
                continue
            if fill.pooled:
                fill.move("expire")
                self._ended(fill, e.time_ns)
            elif fill.waiting is not None and fill.waiting.deadline_ns == when:
                fill.waiting.racing, fill.waiting.deadline_ns = True, None
                self._out.append(Race(fill.workflow, fill.waiting.view.stage, fill.id))

    def _closed(self, e: Closed) -> None:
        workflow = self._workflows.get(e.workflow)
        if workflow is not None:
            for entry in list(workflow.entries):
                self._abandon(entry, e.time_ns, "closed")
            del self._workflows[e.workflow]
        self.index.close(e.workflow)

    def _workflow(self, number: int) -> _Workflow:
        return self._workflows.setdefault(number, _Workflow())

    def _learn(self, fingerprint: int, exec_ns: int) -> None:
        count, total = self._exec_ns.get(fingerprint, (0, 0))
        self._exec_ns[fingerprint] = (count + 1, total + exec_ns)

    def _mean_exec_ns(self, fingerprint: int) -> int:
        count, total = self._exec_ns.get(fingerprint, (0, 0))
        return total // count if count else 0

    def check(self) -> None:
        """Raise AssertionError when the books do not add up. Does not mutate."""
        self.ledger.check()
        self.index.check()
        holding = [f for f in self.fills.values() if f.state in (State.ADMITTED, State.RUNNING)]
        assert self.ledger.fills == len(holding)
        assert self.ledger.kv_tokens == sum(f.plan.kv_tokens for f in holding)
        assert all(f.live for f in self.fills.values())
