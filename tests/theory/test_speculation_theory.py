"""Speculation against formulas: Eq. (2) of DynBranch, and the asymptotic ratio of Speculative Actions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import branch_events as ev
from policies.branching import BranchingConfig, Controller
from policies.laws import toy_host
from policies.registry import load
from policies.views import BranchView, StageView
from traces import draws

MS = 1_000_000
LOAD = ev.HostLoad(0.1, 1)


class Pairs:
    """Drives a controller through pairs of a decision and the stage it leads to."""

    def __init__(self) -> None:
        policies = (
            load("gates", "speculative_actions", {"k": 1}),
            load("candidates", "random"),
            load("reuse", "none"),
        )
        self.c = Controller(*policies, toy_host(), BranchingConfig(demand="join"))  # type: ignore[arg-type]
        self.now, self.number = 0, 0

    def run(self, decision_ns: int, setup_ns: int, stage_ns: int, covered: bool) -> tuple[int, int]:
        """Return (time until the stage has its result, what the settled branch says was saved), in ns."""
        n, begin, handle = self.number, self.now, self.c.handle
        self.number += 1
        resolved = begin + decision_ns
        branch = BranchView(n, 10 * n, 1, 0, begin, (), (1,), (0,))
        view = StageView(n, 10 * n + 1, 0, 5, 1000 + n)
        assert handle(ev.Opened(begin, n, branch, LOAD)) == [ev.Draft(n, 4, None)]
        launched: ev.Launch | None = None
        if setup_ns < decision_ns:
            t = begin + setup_ns
            (plan,) = handle(ev.Drafted(t, n, setup_ns))
            assert isinstance(plan, ev.Plan)
            (launch,) = handle(ev.Planned(t, n, (ev.FillPlan((10 * n + 1,), (5,), 16),), LOAD))
            assert isinstance(launch, ev.Launch)
            assert handle(ev.FillStarted(t, launch.fill, 0, view)) == [ev.RunFill(launch.fill, 0)]
            launched = launch
        fill_end = begin + setup_ns + stage_ns
        if launched is not None and fill_end < resolved:
            handle(ev.FillStageDone(fill_end, launched.fill, 0, 7, stage_ns))
        out = handle(ev.Resolved(resolved, n, (ev.Choice(1 if covered else 2),)))
        if launched is None:
            out += handle(ev.Drafted(begin + setup_ns, n, setup_ns))
        out += handle(ev.Demanded(resolved, view, n))
        end = resolved + stage_ns
        if any(isinstance(c, ev.Promote) for c in out):
            end = resolved
        elif any(isinstance(c, ev.Join | ev.Race) for c in out):
            assert launched is not None
            end = fill_end
            out += handle(ev.FillStageDone(end, launched.fill, 0, 7, stage_ns))
            assert any(isinstance(c, ev.Promote) for c in out)
        out += handle(ev.Closed(end, n))
        (settled,) = [c.outcome for c in out if isinstance(c, ev.Settle)]
        self.now = end
        return end - begin, settled.saved_ns


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 500), st.integers(0, 300), st.integers(1, 500), st.booleans())
def test_an_early_fill_hides_the_shorter_of_window_and_execution(
    decision: int, setup: int, stage: int, covered: bool
) -> None:
    # Eq. (2): min(T_gen, T_exec) if covered and nothing otherwise; the window begins when drafting is done (D10).
    took, saved = Pairs().run(decision * MS, setup * MS, stage * MS, covered)
    hidden = covered * min(max(decision - setup, 0), stage) * MS
    assert took == (decision + stage) * MS - hidden
    assert saved == hidden
    assert hidden <= min(decision, stage) * MS


@pytest.mark.parametrize(("p", "alpha", "beta"), [(0.5, 3.0, 1.0), (0.9, 1.0, 1.0), (0.3, 10.0, 2.0)])
def test_speculative_actions_reach_their_asymptotic_ratio(p: float, alpha: float, beta: float) -> None:
    """1 - p/(1+p) * alpha/(alpha+beta) (arXiv 2510.04371): guesses take Exp(alpha), calls Exp(beta).

    The formula counts all that is left of a call when its successor starts as saved. That holds where both calls of
    a pair take equally long; for independent calls only the shorter of the rest and the successor is hidden, half of it
    on average, and the gain is halved.
    """
    for independent, factor in ((False, 1.0), (True, 0.5)):
        pairs, steps, total, squares = Pairs(), 0.0, 0.0, 0.0
        n = 4000
        expected = 1 - factor * p / (1 + p) * alpha / (alpha + beta)
        for i in range(n):
            a, s, b = (_exponential(i, k, rate) for k, rate in enumerate((beta, alpha, beta)))
            right = draws.uniform(1, "right", i) < p
            if right:
                took, _ = pairs.run(a, s, b if independent else a, True)
            else:
                took, _ = a, 0
            total += took
            steps += 1 + right
            # Ratio estimator: the residual of a cycle has mean zero under the formula.
            residual = took - expected * (1 + right) * 1000 * MS / beta
            squares += residual * residual
        ratio = total / (steps * 1000 * MS / beta)
        half = 3.29 * math.sqrt(squares / n) / (1000 * MS / beta) / (1 + p) / math.sqrt(n)  # 99.9 %
        assert abs(ratio - expected) < half, (independent, ratio, expected, half)
        assert half < 0.06


def _exponential(i: int, k: int, rate: float) -> int:
    return 1 + round(-math.log1p(-draws.uniform(1, "exponential", i, k)) * 1000 * MS / rate)
