"""The controller against a model, event by event: any order of events, late ones and ends at every point included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from policies import branch_events as ev
from policies.branching import BranchingConfig, Controller
from policies.laws import toy_host
from policies.registry import load
from policies.reuse_names import hashed
from policies.views import BranchView, StageView

LOAD = ev.HostLoad(0.2, 2)
MS = 1_000_000
KEYS = 2
OUTCOMES = 3


class Machine(RuleBasedStateMachine):
    """Workflows of one branch, whose options lead to a chain of two stages. Inputs recur between workflows.

    The model keeps what is true: versions, what each fill computed at which versions, what was resolved to what.
    """

    def __init__(self) -> None:
        super().__init__()
        policies: Any = (
            load("gates", "always"),
            load("candidates", "oracle", {"coverage": 1.0, "accuracy": 0.0}),
            (load("reuse", "subgraph")),
        )
        host = toy_host()
        object.__setattr__(host, "branch_oracle", self)
        self.c = Controller(*policies, host, BranchingConfig(fills_max=4, horizon_ns=50 * MS, candidates=3))
        self.now = 0
        self.versions = dict.fromkeys(range(KEYS), 0)
        self.entries: dict[int, dict[str, Any]] = {}
        self.fills: dict[int, dict[str, Any]] = {}
        self.executing: dict[tuple[int, int], tuple[StageView, int]] = {}
        self.joined: dict[tuple[int, int], int] = {}
        self.values: dict[tuple[int, int], int] = {}
        self.asked: dict[tuple[int, int], StageView] = {}

    # --- the model's world ---

    def choice(self, branch: BranchView) -> tuple[int, int]:
        return branch.workflow % OUTCOMES, 0

    def view(self, workflow: int, position: int, outcome: int, before: int) -> StageView:
        key = (outcome + position) % KEYS
        rendered = hashed(1, outcome, position, before)
        reads = ((key, self.versions[key]),)
        return StageView(workflow, 10 * workflow + 1 + position, 0, position, rendered, workflow % 2, reads)

    def truth(self, view: StageView) -> int:
        return hashed(2, view.rendered_input, view.parameters, *(x for r in view.read_set for x in r))

    def tell(self, event: ev.Event) -> None:
        for command in self.c.handle(event):
            getattr(self, f"on_{type(command).__name__.lower()}", lambda c: None)(command)

    def on_draft(self, c: ev.Draft) -> None:
        self.entries[c.entry]["drafting"] = True

    def on_plan(self, c: ev.Plan) -> None:
        self.entries[c.entry]["plan"] = c.candidates

    def on_launch(self, c: ev.Launch) -> None:
        assert "choice" not in self.entries[c.entry], "a fill was launched after the resolution"
        self.fills[c.fill] = {
            "entry": c.entry,
            "candidate": c.candidate,
            "position": 0,
            "state": "idle",
            "values": [],
        }

    def on_runfill(self, c: ev.RunFill) -> None:
        self.fills[c.fill]["state"] = "runs"

    def on_skipfill(self, c: ev.SkipFill) -> None:
        fill = self.fills[c.fill]
        assert c.value == self.truth(fill["view"]), "a fill took a stale result"
        fill["state"] = "runs"

    def on_advance(self, c: ev.Advance) -> None:
        self.fills[c.fill].update(position=c.position, state="idle")

    def on_cancel(self, c: ev.Cancel) -> None:
        self.fills[c.fill]["state"] = "dead"

    def on_serve(self, c: ev.Serve) -> None:
        view = self.asked[c.workflow, c.stage]
        assert c.values == (self.truth(self.again(view)),), (
            "served another value than an execution would give"
        )
        self.values[c.workflow, c.stage] = c.values[0]

    def on_promote(self, c: ev.Promote) -> None:
        fill, view = self.fills[c.fill], self.asked[c.workflow, c.stage]
        entry = self.entries[fill["entry"]]
        if entry["exclusive"]:
            assert fill["candidate"].outcome == entry["choice"], "a loser was read"
        assert "choice" in entry, "a fill was read before the resolution"
        assert c.value == self.truth(self.again(view)), "promoted another value than an execution would give"
        assert (c.workflow, c.stage) not in self.values, "promoted twice"
        self.values[c.workflow, c.stage] = c.value
        self.executing.pop((c.workflow, c.stage), None)
        self.joined.pop((c.workflow, c.stage), None)

    def on_join(self, c: ev.Join) -> None:
        self.joined[c.workflow, c.stage] = c.fill

    def on_race(self, c: ev.Race) -> None:
        self.joined.pop((c.workflow, c.stage), None)
        self.execute(c.workflow, c.stage)

    def on_miss(self, c: ev.Miss) -> None:
        self.joined.pop((c.workflow, c.stage), None)
        self.execute(c.workflow, c.stage)

    def execute(self, workflow: int, stage: int) -> None:
        if "closed" in self.entries[workflow]:
            return
        assert (workflow, stage) not in self.executing, "executed twice"
        view = self.again(self.asked[workflow, stage])
        self.executing[workflow, stage] = (view, self.truth(view))

    def again(self, view: StageView) -> StageView:
        """The view with the versions of now: what an execution that starts now would read."""
        entry = self.entries[view.workflow]
        position = view.stage - 10 * view.workflow - 1
        before = self.values.get((view.workflow, view.stage - 1), 0) if position else 0
        return self.view(view.workflow, position, entry["choice"], before)

    # --- what may happen: one rule, or hypothesis would leave out most kinds of event in most runs ---

    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        idle, runs, dead = (self.fills_in(state) for state in ("idle", "runs", "dead"))
        unresolved = [n for n, e in self.entries.items() if "choice" not in e]
        enabled: list[tuple[Callable[..., None], list[Any]]] = [
            (self.pass_time, [1, 10, 40]), (self.write, list(range(KEYS))), (self.probe, [0]),
            (self.open, [True, False] if len(unresolved) < 2 else []),
            (self.draft, self.entries_with("drafting")), (self.plan, self.entries_with("plan")),
            (self.start, idle), (self.start_all, [0] if idle else []), (self.end, runs),
            (self.end_all, [0] if runs else []), (self.die, idle + runs), (self.late_news, dead),
            (self.resolve, unresolved), (self.second_stage, self.askable()),
            (self.execution_ends, sorted(self.executing)),
            (self.close, [n for n, e in self.entries.items() if "closed" not in e][:1]),
        ]  # fmt: skip
        # What brings a fill to its end comes oftener, or most runs would close before anything is promoted.
        enabled += 3 * [(self.start_all, [0] if idle else []), (self.end_all, [0] if runs else [])]
        enabled += 2 * [(self.draft, self.entries_with("drafting")), (self.plan, self.entries_with("plan"))]
        enabled = [(do, among) for do, among in enabled if among]
        do, among = data.draw(st.sampled_from(enabled))
        argument = data.draw(st.sampled_from(among))
        if do == self.resolve:
            do(argument, data.draw(st.integers(0, OUTCOMES - 1)))
        else:
            do(argument)

    def pass_time(self, ms: int) -> None:
        self.now += ms * MS
        deadline = self.c.next_deadline_ns()
        if deadline is not None and deadline <= self.now:
            self.tell(ev.Ticked(self.now))

    def open(self, exclusive: bool) -> None:
        n = len(self.entries)
        self.entries[n] = {"exclusive": exclusive}
        menu = tuple(range(OUTCOMES))
        branch = BranchView(n, 10 * n, 1, 0, self.now, (), menu, (0,) * OUTCOMES)
        self.tell(ev.Opened(self.now, n, branch, LOAD, exclusive))

    def entries_with(self, key: str) -> list[int]:
        return [n for n, e in self.entries.items() if key in e]

    def fills_in(self, state: str) -> list[int]:
        return [f for f, x in self.fills.items() if x["state"] == state]

    def draft(self, n: int) -> None:
        del self.entries[n]["drafting"]
        self.tell(ev.Drafted(self.now, n, MS))

    def plan(self, n: int) -> None:
        candidates = self.entries[n].pop("plan")
        plan = ev.FillPlan((10 * n + 1, 10 * n + 2), (0, 1), 100)
        self.tell(ev.Planned(self.now, n, tuple(plan if n % 4 or c.rank else None for c in candidates), LOAD))

    def start(self, f: int) -> None:
        fill = self.fills[f]
        before = fill["values"][-1] if fill["values"] else 0
        fill["view"] = self.view(fill["entry"], fill["position"], fill["candidate"].outcome, before)
        fill["state"] = "told"
        self.tell(ev.FillStarted(self.now, f, fill["position"], fill["view"]))

    def start_all(self, _: int) -> None:
        for f in self.fills_in("idle"):
            if self.fills[f]["state"] == "idle":
                self.start(f)

    def end(self, f: int) -> None:
        fill = self.fills[f]
        fill["values"].append(self.truth(fill["view"]))
        fill["state"] = "done"
        self.tell(ev.FillStageDone(self.now, f, fill["position"], fill["values"][-1], MS))

    def end_all(self, _: int) -> None:
        for f in self.fills_in("runs"):
            if self.fills[f]["state"] == "runs":  # the end of one may have stopped another
                self.end(f)

    def die(self, f: int) -> None:
        self.fills[f]["state"] = "dead"
        self.tell(ev.FillFailed(self.now, f, "killed"))

    def late_news(self, f: int) -> None:
        assert self.c.handle(ev.FillStageDone(self.now, f, 0, 666)) == []

    def resolve(self, n: int, outcome: int) -> None:
        self.entries[n]["choice"] = outcome
        self.tell(ev.Resolved(self.now, n, (ev.Choice(outcome, 0),)))
        self.demand(n, 0)

    def second_stage(self, n: int) -> None:
        self.demand(n, 1)

    def askable(self) -> list[int]:
        return [
            n
            for n, e in self.entries.items()
            if "closed" not in e and (n, 10 * n + 1) in self.values and (n, 10 * n + 2) not in self.asked
        ]

    def demand(self, n: int, position: int) -> None:
        if "closed" in self.entries[n]:
            return
        stage = 10 * n + 1 + position
        before = self.values[n, stage - 1] if position else 0
        view = self.view(n, position, self.entries[n]["choice"], before)
        self.asked[n, stage] = view
        self.tell(ev.Demanded(self.now, view, n))
        answers = [(n, stage) in x for x in (self.values, self.executing, self.joined)]
        assert sum(answers) == 1, "a demand has exactly one answer"

    def execution_ends(self, at: tuple[int, int]) -> None:
        view, value = self.executing.pop(at)
        self.values[at] = value
        self.tell(ev.CanonicalDone(self.now, view, value, 5 * MS))

    def write(self, key: int) -> None:
        self.versions[key] += 1
        self.tell(ev.Written(self.now, key, self.versions[key]))

    def close(self, n: int) -> None:
        self.entries[n]["closed"] = True
        self.entries[n].setdefault("choice", 0)
        for table in (self.executing, self.joined):
            for at in [a for a in table if a[0] == n]:
                del table[at]
        self.tell(ev.Closed(self.now, n))
        assert n not in self.c.book.workflows

    def probe(self, _: int) -> None:
        self.tell(ev.Probed(self.now, LOAD))

    @invariant()
    def books_add_up(self) -> None:
        self.c.check()

    @invariant()
    def nobody_waits_for_a_dead_fill(self) -> None:
        assert all(self.fills[f]["state"] != "dead" for f in self.joined.values())


Machine.TestCase.settings = settings(max_examples=40, stateful_step_count=80, deadline=None, derandomize=True)
TestAnyOrderOfEventsIsSafe = Machine.TestCase
