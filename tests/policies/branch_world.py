"""A small host for the speculation controller: workloads of `traces`, time from a heap, truth from `traces.rendering`.

Everything that is spliced into canonical flow is checked against the truth at that instant; a difference, or work of
a fill that its branch did not choose, is an unsafe splice. Durations are drawn, so that resolutions, completions,
demands, writes, failures and ends of workflows race; equal times are frequent on purpose.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from policies import branch_events as ev
from policies.api import CandidateDrafter, Gate, HostInfo, ReusePolicy
from policies.branching import BranchingConfig, Controller
from policies.guards import Guards
from policies.laws import toy_host
from policies.reuse_names import hashed
from policies.views import BranchOutcome, BranchView, Scope, StageView
from traces import draws
from traces.branches import StageFlag
from traces.rendering import Rendering
from traces.schema import Workload

MS = 1_000_000


@dataclass(frozen=True)
class Chances:
    """Per mille: a fill's stage fails, a workflow is aborted at a stage's end. `grain_ms`: durations are multiples."""

    fails: int = 20
    aborts: int = 5
    grain_ms: int = 5
    longest: int = 12


class World:
    """The host. `run` to the end; then read what happened."""

    def __init__(
        self,
        workload: Workload,
        gate: Gate[Any],
        candidate: CandidateDrafter[Any],
        reuse: ReusePolicy[Any],
        *,
        seed: int = 0,
        config: BranchingConfig | None = None,
        guards: Guards | None = None,
        chances: Chances | None = None,
        host: HostInfo | None = None,
    ) -> None:
        assert workload.branches is not None
        self.w, self.b, self.r = workload, workload.branches, Rendering(workload)
        self.seed, self.chances = seed, chances or Chances()
        info = host or toy_host(seed)
        if "oracle" in candidate.needs:
            info = replace(info, branch_oracle=self)
        self.c = Controller(gate, candidate, reuse, info, config, guards)
        self.now, self._heap, self._order = 0, [], 0
        self.values: dict[int, int] = {}
        self.versions: dict[int, int] = {}
        self.events: list[ev.Event] = []
        self.commands: list[list[ev.Command]] = []
        self.outcomes: list[BranchOutcome] = []
        self.unsafe: list[str] = []
        self.count: Counter[str] = Counter()
        self.first_unsafe: int | None = None
        self._prepare()

    # --- what the workload says ---

    def _prepare(self) -> None:
        w, b = self.w, self.b
        self.workflow = w.stage_workflow.tolist()
        self.first = np.searchsorted(w.stage_workflow, np.arange(w.n_workflows + 1)).tolist()
        ptr, parents = w.parent_ptr.tolist(), w.parent_idx.tolist()
        self.parents = [parents[ptr[s] : ptr[s + 1]] for s in range(w.n_stages)]
        self.children: list[list[int]] = [[] for _ in range(w.n_stages)]
        for s, ps in enumerate(self.parents):
            for p in ps:
                self.children[p].append(s)
        self.canonical = b.canonical().tolist()
        self.mutating = ((b.stage_flags & StageFlag.MUTATING) != 0).tolist()
        self.content = b.stage_content.tolist()
        self.kind, self.agent = w.stage_kind.tolist(), w.stage_agent.tolist()
        self.deciding = {s: i for i, s in enumerate(b.branch_stage.tolist())}
        optr = b.option_ptr.tolist()
        self.options = [range(optr[i], optr[i + 1]) for i in range(b.n_branches)]
        sptr, idx = b.option_stage_ptr.tolist(), b.option_stage_idx.tolist()
        self.paths = [idx[sptr[o] : sptr[o + 1]] for o in range(b.n_options)]
        self.chosen_as = list(zip(b.option_outcome.tolist(), b.option_arguments.tolist(), strict=True))
        self.chosen, self.offered = b.option_chosen.tolist(), b.option_offered.tolist()
        self.branch_of = b.option_branch.tolist()
        self.scopes: dict[int, list[tuple[int, int]]] = {}
        for first, last, print_ in zip(
            b.subgraph_first.tolist(), b.subgraph_last.tolist(), b.subgraph_fingerprint.tolist(), strict=True
        ):
            inside = [s for s in range(first, last + 1) if self.canonical[s]]
            if len(inside) > 1 and all(self.r.speculable[s] and not self.mutating[s] for s in inside):
                self.scopes.setdefault(first, []).append((last, print_))
        self.waits = [0] * w.n_stages
        self.released: set[int] = set()
        self.entry: dict[int, int] = {}
        self.next_entry = 0
        self.entry_branch: dict[int, int] = {}
        self.launch: dict[int, ev.Launch] = {}
        self.fill_values: dict[int, dict[int, int]] = {}
        self.fill_views: dict[int, tuple[int, StageView]] = {}
        self.held: set[int] = set()
        self.running: set[int] = set()
        self.over: set[int] = set()
        self.history: dict[int, list[int]] = {}
        self.pending_render: list[tuple[int, int]] = []
        self.resolved: set[int] = set()
        self.parent: dict[int, int] = {}
        self.nested: dict[int, int] = {}
        self.past: dict[int, ev.Launch] = {}

    def choice_of(self, branch: int) -> list[tuple[int, int]]:
        return [self.chosen_as[o] for o in self.options[branch] if self.chosen[o]]

    def choice(self, branch: BranchView) -> tuple[int, int]:
        """The oracle's answer: the first choice taken, one that nothing stands for where there is none."""
        return (*self.choice_of(self.deciding[branch.stage]), (-1, 0))[0]

    # --- time ---

    def at(self, delay_ms: int, what: str, *args: Any) -> None:
        self._order += 1
        luck = draws.bits(self.seed, "world tie", self._order)
        heapq.heappush(self._heap, (self.now + delay_ms * MS, luck, self._order, what, args))

    def lasts(self, purpose: str, *ids: int) -> int:
        n = draws.bits(self.seed, f"world {purpose}", *ids) % (self.chances.longest + 1)
        return n * self.chances.grain_ms

    def likely(self, per_mille: int, purpose: str, *ids: int) -> bool:
        return draws.bits(self.seed, f"world {purpose}", *ids) % 1000 < per_mille

    def run(self) -> World:
        for i in range(self.w.n_workflows):
            self.at(i * 40 + self.lasts("arrival", i), "begin", i)
        for i, t in enumerate(self.b.external_time_ns.tolist()):
            if self.b.external_workflow[i] < 0:
                self.at(t // MS, "write", int(self.b.external_key[i]))
        self.at(0, "probe")
        while self._heap:
            deadline = self.c.next_deadline_ns()
            if deadline is not None and deadline <= self._heap[0][0]:
                self.now = max(deadline, self.now)
                self.tell(ev.Ticked(self.now))
                continue
            self.now, _, _, what, args = heapq.heappop(self._heap)
            getattr(self, f"_{what}")(*args)
        return self

    def load(self) -> ev.HostLoad:
        return ev.HostLoad(min(len(self.running) / 8, 1.0), len(self.running))

    def tell(self, event: ev.Event) -> None:
        self.events.append(event)
        commands = self.c.handle(event)
        self.commands.append(list(commands))
        for command in commands:
            self.count[type(command).__name__] += 1
            getattr(self, f"_do_{type(command).__name__.lower()}")(command)

    # --- canonical flow ---

    def _probe(self) -> None:
        self.tell(ev.Probed(self.now, self.load()))
        if self._heap:
            self.at(50, "probe")

    def _begin(self, i: int) -> None:
        for t, key, of in zip(
            self.b.external_time_ns.tolist(), self.b.external_key.tolist(), self.b.external_workflow.tolist(),
            strict=True,
        ):  # fmt: skip
            if of == i:
                self.at(t // MS // 20, "write", key)
        stages = [s for s in range(self.first[i], self.first[i + 1]) if self.canonical[s]]
        for s in stages:
            self.waits[s] = len([p for p in self.parents[s] if self.canonical[p]])
        if not stages:
            return
        for s in stages:
            if self.waits[s] == 0:
                self.release(s)

    def _write(self, key: int) -> None:
        self.versions[key] = self.versions.get(key, 0) + 1
        self.tell(ev.Written(self.now, key, self.versions[key]))

    def reads(self, s: int) -> tuple[tuple[int, int], ...]:
        return tuple((k, self.versions.get(k, 0)) for k in self.r.reads[s])

    def view(self, s: int, values: dict[int, int], *, canonical: bool) -> StageView:
        scopes = []
        for last, print_ in self.scopes.get(s, ()) if canonical else ():
            inside = [x for x in range(s, last + 1) if self.canonical[x]]
            outside = {p for x in inside for p in self.parents[x] if not s <= p <= last}
            if any(x in self.released for x in inside[1:]) or any(p not in values for p in outside):
                continue
            flat: list[int] = []
            for x in inside:
                flat += [self.r.fingerprint[x], self.content[x]]
                for p, choice in self.r.inputs[x]:
                    into = choice if choice is not None else values[p] if p in outside else p - s
                    flat += [into, int(p in outside)]
            params = hashed(1, *(self.r.params[x] for x in inside))
            span = last - s + 1
            scopes.append(Scope("subgraph", print_, hashed(2, *flat), params, len(inside), span=span))
        rendered = self.r.rendered(s, values)
        return StageView(
            self.workflow[s], s, self.agent[s], self.r.fingerprint[s], rendered, self.r.params[s], self.reads(s),
            tuple(scopes), 0, self.r.speculable[s] and not self.mutating[s],
        )  # fmt: skip

    def release(self, s: int) -> None:
        if self.workflow[s] in self.over or s in self.released:
            return
        option = self.r.path[s]
        entry = self.entry.get(self.branch_of[option], -1) if option >= 0 else -1
        view = self.view(s, self.values, canonical=True)
        self.released.add(s)
        self.count["stages"] += 1
        self.tell(ev.Demanded(self.now, view, entry))

    def execute(self, s: int) -> None:
        view = self.view(s, self.values, canonical=False)
        value = self.r.value(s, view.rendered_input, view.read_set)
        self.running.add(s)
        self.at(self.lasts("execution", s), "executed", s, view, value, self.now)
        branch = self.deciding.get(s)
        if branch is not None and branch not in self.entry:
            self.entry[branch] = self.open(branch, -1)

    def _executed(self, s: int, view: StageView, value: int, since: int) -> None:
        if s not in self.running or self.workflow[s] in self.over:
            return
        self.running.discard(s)
        self.tell(ev.CanonicalDone(self.now, view, value, self.now - since))
        self.done(s, value)

    def done(self, s: int, value: int) -> None:
        i = self.workflow[s]
        if i in self.over:
            return
        self.values[s] = value
        self.running.discard(s)
        self.held.discard(s)
        if self.mutating[s]:
            for key in self.r.writes[s]:
                self._write(key)
        branch = self.deciding.get(s)
        if branch is not None:
            self.resolve(branch, self.entry.get(branch, -1))
        if self.likely(self.chances.aborts, "abort", s):
            self.over.add(i)
            self.tell(ev.Closed(self.now, i))
            return
        self.render_pending()
        for child in self.children[s]:
            if self.canonical[child]:
                self.waits[child] -= 1
                if self.waits[child] == 0:
                    self.release(child)
        mine = [x for x in range(self.first[i], self.first[i + 1]) if self.canonical[x]]
        if i not in self.over and all(x in self.values for x in mine):
            self.over.add(i)
            self.tell(ev.Closed(self.now, i))

    def resolve(self, branch: int, entry: int) -> None:
        chosen = self.choice_of(branch)
        i = self.workflow[int(self.b.branch_stage[branch])]
        self.history.setdefault(i, []).extend(o for o, _ in chosen)
        if entry >= 0 and entry not in self.resolved:
            self.resolved.add(entry)
            self.tell(ev.Resolved(self.now, entry, tuple(ev.Choice(*c) for c in chosen)))

    # --- branches and fills ---

    def open(self, branch: int, parent_fill: int) -> int:
        entry, self.next_entry = self.next_entry, self.next_entry + 1
        self.entry_branch[entry] = branch
        self.parent[entry] = parent_fill
        s = int(self.b.branch_stage[branch])
        shown = [o for o in self.options[branch] if self.offered[o]]
        scores = {
            name: tuple(float(np.nan_to_num(self.b.option_score[k, o], nan=-1.0)) for o in shown)
            for k, name in enumerate(self.b.drafters)
        }
        view = BranchView(
            self.workflow[s], s, int(self.b.branch_coordinate[branch]), self.agent[s], self.now,
            tuple(self.history.get(self.workflow[s], ())), tuple(self.chosen_as[o][0] for o in shown),
            tuple(self.chosen_as[o][1] for o in shown), scores, bool(self.b.branch_open_space[branch]),
        )  # fmt: skip
        exclusive = bool(self.b.branch_exclusive[branch])
        self.tell(ev.Opened(self.now, entry, view, self.load(), exclusive, parent_fill))
        return entry

    def _do_draft(self, c: ev.Draft) -> None:
        self.at(self.lasts("drafting", c.entry) // 4, "drafted", c.entry, self.now)

    def _drafted(self, entry: int, since: int) -> None:
        self.tell(ev.Drafted(self.now, entry, self.now - since))

    def _do_plan(self, c: ev.Plan) -> None:
        branch = self.entry_branch[c.entry]
        plans: list[ev.FillPlan | None] = []
        for candidate in c.candidates:
            want = (candidate.outcome, candidate.arguments)
            option = next((o for o in self.options[branch] if self.chosen_as[o] == want), None)
            path = []
            for s in self.paths[option] if option is not None else ():
                if not self.r.speculable[s] or self.mutating[s] or self.kind[s] == 2:
                    break
                path.append(s)
                if s in self.deciding:
                    break
            kv = 64 * sum(self.kind[s] == 0 for s in path[:1])
            keys = tuple(self.r.fingerprint[s] for s in path)
            plans.append(ev.FillPlan(tuple(path), keys, kv) if path else None)
        self.tell(ev.Planned(self.now, c.entry, tuple(plans), self.load()))

    def _do_launch(self, c: ev.Launch) -> None:
        self.launch[c.fill] = self.past[c.fill] = c
        self.fill_values[c.fill] = {}
        self.pending_render.append((c.fill, 0))
        self.render_pending()

    def _do_advance(self, c: ev.Advance) -> None:
        self.pending_render.append((c.fill, c.position))
        self.render_pending()

    def render_pending(self) -> None:
        """Start the stages whose inputs are known: those of canonical parents, and the fill's own."""
        waiting, self.pending_render = self.pending_render, []
        for fill, position in waiting:
            launch = self.launch.get(fill)
            if launch is None:
                continue
            s = launch.plan.stages[position]
            known = self.ancestry(fill)
            if all(p in known or choice is not None for p, choice in self.r.inputs[s]):
                self.fill_views[fill] = (position, self.view(s, known, canonical=False))
                self.tell(ev.FillStarted(self.now, fill, position, self.fill_views[fill][1]))
            else:
                self.pending_render.append((fill, position))

    def ancestry(self, fill: int) -> dict[int, int]:
        """Return the values that a fill may read: canonical ones, its own, and those of the fills it is nested in."""
        out = dict(self.values)
        at = fill
        while at >= 0:
            out.update(self.fill_values.get(at, {}))
            at = self.parent[self.past[at].entry]
        return out

    def _do_runfill(self, c: ev.RunFill) -> None:
        position, view = self.fill_views[c.fill]
        s = self.launch[c.fill].plan.stages[position]
        assert not self.mutating[s], "a mutating stage ran early"
        value = self.r.value(s, view.rendered_input, view.read_set)
        self.at(self.lasts("fill", c.fill, position), "filled", c.fill, position, value, self.now)
        branch = self.deciding.get(s)
        if branch is not None and branch not in self.entry:
            self.nested[c.fill] = self.open(branch, c.fill)

    def _do_skipfill(self, c: ev.SkipFill) -> None:
        self.at(0, "filled", c.fill, c.position, c.value, self.now)

    def _filled(self, fill: int, position: int, value: int, since: int) -> None:
        if fill not in self.launch:
            return
        if self.likely(self.chances.fails, "fails", fill, position):
            del self.launch[fill]
            self.tell(ev.FillFailed(self.now, fill, "died", self.now - since))
            return
        s = self.launch[fill].plan.stages[position]
        self.fill_values[fill][s] = value
        nested = self.nested.get(fill)
        self.tell(ev.FillStageDone(self.now, fill, position, value, self.now - since))
        if nested is not None and s in self.deciding and nested not in self.resolved:
            self.resolved.add(nested)
            chosen = self.choice_of(self.deciding[s])
            self.tell(ev.Resolved(self.now, nested, tuple(ev.Choice(*c) for c in chosen)))

    def _do_cancel(self, c: ev.Cancel) -> None:
        self.launch.pop(c.fill, None)

    def _do_settle(self, c: ev.Settle) -> None:
        self.outcomes.append(c.outcome)

    # --- what comes back to canonical flow ---

    def splice(self, s: int, value: int, how: str) -> None:
        truth = self.r.value(s, self.r.rendered(s, self.values), self.reads(s))
        if value != truth:
            self.flag(f"{how}: stage {s} got another value than an execution now would give")

    def flag(self, what: str) -> None:
        if self.first_unsafe is None:
            self.first_unsafe = self.count["stages"]
        self.unsafe.append(what)

    def _do_serve(self, c: ev.Serve) -> None:
        self.count["served stages"] += len(c.values)
        if c.name.stages == 1:
            stages = [c.stage]
        else:
            last = next(
                last
                for last, _ in self.scopes[c.stage]
                if sum(self.canonical[x] for x in range(c.stage, last + 1)) == c.name.stages
            )
            stages = [x for x in range(c.stage, last + 1) if self.canonical[x]]
        self.released.update(stages)
        for s, value in zip(stages, c.values, strict=True):
            self.splice(s, value, f"served under {c.name.scope}")
            self.values[s] = value
        for s, value in zip(stages, c.values, strict=True):
            self.at(0, "taken", s, value)

    def _taken(self, s: int, value: int) -> None:
        self.done(s, value)

    def _do_promote(self, c: ev.Promote) -> None:
        launch = self.past[c.fill]
        branch = self.entry_branch[launch.entry]
        want = (launch.candidate.outcome, launch.candidate.arguments)
        exclusive = bool(self.b.branch_exclusive[branch])
        if exclusive and want not in self.choice_of(branch):
            self.flag(f"fill {c.fill} of a choice that was not taken was read")
        if launch.entry not in self.resolved:
            self.flag(f"fill {c.fill} was read before its branch resolved")
        self.splice(c.stage, c.value, "promoted")
        self.values[c.stage] = c.value
        self.running.discard(c.stage)
        self.at(0, "taken", c.stage, c.value)

    def _do_join(self, c: ev.Join) -> None:
        self.held.add(c.stage)

    def _do_race(self, c: ev.Race) -> None:
        self.held.discard(c.stage)
        self.execute(c.stage)

    def _do_miss(self, c: ev.Miss) -> None:
        self.held.discard(c.stage)
        self.execute(c.stage)

    def _do_adopt(self, c: ev.Adopt) -> None:
        self.entry[self.entry_branch[c.entry]] = c.entry
