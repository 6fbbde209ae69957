"""Demands on fills, one at a time: who waits for what, for how long, and what is booked."""

from __future__ import annotations

from typing import Any

import pytest

from policies import branch_events as ev
from policies.branching import BranchingConfig, Controller
from policies.laws import toy_host
from policies.registry import load
from policies.views import BranchView, StageView
from traces.errors import InputError

MS = 1_000_000
LOAD = ev.HostLoad(0.2, 2)
MENU = (1, 2)


class Case:
    """A controller that knows that the stage takes 100 ms, with a launched fill for each of two options."""

    def __init__(
        self, *, stages: int = 1, reuse: str = "none", exclusive: bool = True, **config: Any
    ) -> None:
        policies: Any = load("gates", "always"), load("candidates", "random"), load("reuse", reuse)
        self.c = Controller(*policies, toy_host(), BranchingConfig(**config))
        self.tell(ev.CanonicalDone(0, StageView(99, 990, 0, 5, 123), 1, 100 * MS))
        self.tell(ev.Opened(0, 0, BranchView(0, 0, 1, 0, 0, (), MENU, MENU), LOAD, exclusive))
        (plan,) = self.tell(ev.Drafted(0, 0, 0))
        assert isinstance(plan, ev.Plan)
        paths = ev.FillPlan(tuple(range(1, 1 + stages)), (5,) * stages, 10)
        launched = self.tell(ev.Planned(0, 0, (paths, paths), LOAD))
        self.fill = {c.candidate.outcome: c.fill for c in launched if isinstance(c, ev.Launch)}

    def tell(self, event: ev.Event) -> list[ev.Command]:
        out = self.c.handle(event)
        self.c.check()
        return out

    def start(
        self, ms: int, outcome: int, position: int = 0, reads: tuple[tuple[int, int], ...] = ()
    ) -> list[ev.Command]:
        return self.tell(
            ev.FillStarted(ms * MS, self.fill[outcome], position, view(outcome, position, reads))
        )

    def done(self, ms: int, outcome: int, position: int = 0) -> list[ev.Command]:
        return self.tell(ev.FillStageDone(ms * MS, self.fill[outcome], position, 70 + outcome, 5 * MS))

    def resolve(self, ms: int, outcome: int, arguments: int | None = None) -> list[ev.Command]:
        choice = ev.Choice(outcome, outcome if arguments is None else arguments)
        return self.tell(ev.Resolved(ms * MS, 0, (choice,)))

    def demand(self, ms: int, outcome: int, position: int = 0) -> list[ev.Command]:
        return self.tell(ev.Demanded(ms * MS, view(outcome, position), 0))


def view(outcome: int, position: int = 0, reads: tuple[tuple[int, int], ...] = ()) -> StageView:
    return StageView(0, 1 + position, 0, 5, 1000 + 10 * outcome + position, 0, reads)


def settled(commands: list[ev.Command]) -> Any:
    (out,) = [c.outcome for c in commands if isinstance(c, ev.Settle)]
    return out


def test_a_join_waits_for_the_fill_and_its_wait_is_not_saved() -> None:
    case = Case()
    case.start(0, 1)
    case.resolve(60, 1)
    assert case.demand(60, 1) == [ev.Join(0, 1, case.fill[1])]
    out = case.done(90, 1)
    assert out[0] == ev.Promote(0, 1, case.fill[1], 0, 71)
    assert (settled(out).saved_ns, settled(out).stalled_ns) == (60 * MS, 30 * MS)


def test_a_join_becomes_a_race_when_the_fill_has_run_four_times_the_mean() -> None:
    case = Case()
    case.start(0, 1)
    case.resolve(60, 1)
    case.demand(60, 1)
    assert case.c.next_deadline_ns() == 400 * MS
    assert case.tell(ev.Ticked(400 * MS)) == [ev.Race(0, 1, case.fill[1])]
    out = case.tell(ev.CanonicalDone(500 * MS, view(1), 71, 100 * MS))
    assert out[0] == ev.Cancel(case.fill[1], "late")
    assert settled(out).stalled_ns == 340 * MS
    assert settled(out).saved_ns == 0


def test_a_fill_that_seems_stuck_is_raced_at_once_and_may_still_win() -> None:
    case = Case()
    case.start(0, 1)
    case.resolve(400, 1)
    assert case.demand(400, 1) == [ev.Race(0, 1, case.fill[1])]
    out = case.done(430, 1)
    assert out[0] == ev.Promote(0, 1, case.fill[1], 0, 71)
    assert (settled(out).saved_ns, settled(out).stalled_ns) == (400 * MS, 0)


def test_dropping_cancels_the_fill_and_executes() -> None:
    case = Case(demand="drop")
    case.start(0, 1)
    case.resolve(60, 1)
    out = case.demand(60, 1)
    assert [type(c) for c in out] == [ev.Cancel, ev.Settle, ev.Miss]
    assert settled(out).fills[0 if case.fill[1] == 0 else 1].end == "late"


def test_losers_die_at_the_resolution_and_wrong_arguments_are_told_apart() -> None:
    case = Case()
    case.start(0, 1)
    case.done(50, 1)
    out = case.resolve(60, 1, arguments=9)
    reasons = {c.fill: c.reason for c in out if isinstance(c, ev.Cancel)}
    assert reasons == {case.fill[1]: "wrong argument", case.fill[2]: "unselected"}
    assert settled(out).wasted_ns == 5 * MS
    assert case.demand(60, 1) == [ev.Miss(0, 1)]


def test_a_chosen_fill_that_has_not_begun_is_late() -> None:
    case = Case()
    case.resolve(60, 1)
    out = case.demand(60, 1)
    assert out[:2] == [ev.Miss(0, 1), ev.Cancel(case.fill[1], "late")]


def test_a_promotion_needs_fresh_reads() -> None:
    case = Case()
    case.start(0, 1, reads=((7, 0),))
    case.done(50, 1)
    case.tell(ev.Written(55 * MS, 7, 1))
    case.resolve(60, 1)
    out = case.demand(60, 1)
    assert [type(c) for c in out] == [ev.Cancel, ev.Settle, ev.Miss]
    assert settled(out).fills[0 if case.fill[1] == 0 else 1].end == "stale"


def test_nothing_is_read_before_the_resolution() -> None:
    case = Case(reuse="subgraph")
    case.start(0, 1)
    case.done(50, 1)
    assert case.demand(55, 1) == [ev.Miss(0, 1)]


def test_a_fill_of_two_stages_is_promoted_stage_by_stage_and_stops_when_caught_up() -> None:
    case = Case(stages=2)
    case.start(0, 1)
    assert case.done(50, 1) == [ev.Advance(case.fill[1], 1)]
    case.start(50, 1, position=1)
    case.resolve(60, 1)
    assert case.demand(60, 1) == [ev.Promote(0, 1, case.fill[1], 0, 71)]
    assert case.demand(60, 1, position=1) == [ev.Join(0, 2, case.fill[1])]
    out = case.done(80, 1, position=1)
    assert out[0] == ev.Promote(0, 2, case.fill[1], 1, 71)
    assert settled(out).saved_ns == (50 + 10) * MS

    case = Case(stages=2)
    case.start(0, 1)
    case.resolve(10, 1)
    case.demand(10, 1)
    out = case.done(50, 1)
    assert not any(isinstance(c, ev.Advance) for c in out)
    assert case.c.ledger.fills == 0


def test_with_reuse_a_promoted_result_serves_later_demands() -> None:
    case = Case(reuse="subgraph")
    case.start(0, 1)
    case.done(50, 1)
    case.resolve(60, 1)
    case.demand(60, 1)
    again = StageView(1, 11, 0, 5, view(1).rendered_input)
    (serve,) = case.tell(ev.Demanded(70 * MS, again))
    assert isinstance(serve, ev.Serve)
    assert serve.values == (71,)


def test_what_finished_work_gave_a_fill_teaches_nothing_about_durations() -> None:
    case = Case(reuse="subgraph")
    done = StageView(98, 980, 0, 5, view(1).rendered_input)
    case.tell(ev.CanonicalDone(0, done, 71, 100 * MS))
    assert case.start(0, 1) == [ev.SkipFill(case.fill[1], 0, 71)]
    case.done(0, 1)
    case.start(0, 2)
    case.resolve(60, 2)
    case.demand(60, 2)
    assert case.c.next_deadline_ns() == 400 * MS  # four times 100 ms, still


def test_a_stage_cut_short_wastes_what_its_template_spends_in_engines() -> None:
    case = Case()
    case.start(0, 1)
    case.done(50, 1)  # 5 ms of 50 in an engine
    case.start(50, 2)
    out = case.resolve(70, 1)
    assert [c.reason for c in out if isinstance(c, ev.Cancel)] == ["unselected"]
    assert settled(out + case.demand(70, 1)).wasted_ns == 2 * MS


def test_results_of_a_branch_with_several_valid_outcomes_wait_until_their_horizon() -> None:
    for later, kind in ((1000, ev.Promote), (3000, ev.Miss)):
        case = Case(reuse="subgraph", exclusive=False, horizon_ns=2000 * MS)
        case.start(0, 2)
        case.done(50, 2)
        case.resolve(60, 1)
        case.demand(60, 1)
        case.tell(ev.Closed(70 * MS, 0))
        deadline = case.c.next_deadline_ns()
        assert deadline == 2060 * MS
        if later * MS > deadline:
            case.tell(ev.Ticked(deadline))
        other = StageView(1, 11, 0, 5, view(2).rendered_input)
        (answer,) = case.tell(ev.Demanded(later * MS, other))
        assert isinstance(answer, kind)


def test_drafting_is_paid_for_when_it_ends_after_the_resolution() -> None:
    policies: Any = load("gates", "always"), load("candidates", "random"), load("reuse", "none")
    c = Controller(*policies, toy_host())
    c.handle(ev.Opened(0, 0, BranchView(0, 0, 1, 0, 0, (), MENU, MENU), LOAD))
    assert not any(isinstance(x, ev.Settle) for x in c.handle(ev.Resolved(5, 0, (ev.Choice(1, 1),))))
    assert settled(c.handle(ev.Drafted(9, 0, 9))).setup_ns == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"demand": "joins"}, "unknown branching.demand 'joins'; did you mean 'join'"),
        ({"kv_share": 1.5}, "branching.kv_share=1.5: expected a share"),
        ({"depth": -1}, "branching.depth=-1: expected at least 0"),
        ({"patience": 0}, "branching.patience=0: expected above 0"),
    ],
)
def test_a_bad_option_is_refused_with_what_is_allowed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        BranchingConfig(**options)
