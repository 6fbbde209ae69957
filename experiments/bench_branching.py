"""What speculation costs the host: gate decisions, reuse lookups and whole branches, timed at a load.

The load is branches in flight (each with a launched fill) and results in the store, a hundred to a branch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from policies import branch_events as ev
from policies.branching import BranchingConfig, Controller
from policies.gates.priced import Priced
from policies.laws import toy_host
from policies.registry import load
from policies.reuse_index import Provenance
from policies.views import BranchView, Candidate, FillOption, Scope, StageView
from traces import draws

RESULTS_PER_BRANCH = 100
_LOAD = ev.HostLoad(0.3, 8)
_MENU = (1, 2, 3, 4)


class Speculation:
    """A controller with `branches` open branches and their results. Methods mutate."""

    def __init__(self, branches: int) -> None:
        self.gate = Priced()
        policies = self.gate, load("candidates", "frequency"), load("reuse", "subgraph")
        config = BranchingConfig(fills_max=4 * branches + 64, kv_share=1.0)
        host = replace(toy_host(), capacity_tokens=1 << 40)
        self.c = Controller(*policies, host, config)  # type: ignore[arg-type]
        self.now = self.entries = self.oldest = 0
        self.results = RESULTS_PER_BRANCH * branches
        for i in range(self.results):
            view = self.view(i, i)
            self.c.handle(ev.Demanded(self.now, view))
            self.c.handle(ev.CanonicalDone(self.now, view, i, 1))
            self.c.handle(ev.Closed(self.now, i))
        for _ in range(branches):
            self.open()

    def view(self, workflow: int, content: int) -> StageView:
        """Return a stage that reads one resource and begins a subgraph of three."""
        scope = Scope("subgraph", 3, content, 0, 3)
        return StageView(workflow, 10 * workflow, 0, 5, content, 0, ((content % 64, 0),), (scope,))

    def open(self) -> None:
        """Open a branch and launch what the gate admits, in a workflow of its own."""
        self.now += 1_000_000
        n = self.entries
        self.entries += 1
        branch = BranchView(n, 10 * n, n % 8, 0, self.now, (), _MENU, _MENU)
        handle = self.c.handle
        if not handle(ev.Opened(self.now, n, branch, _LOAD)):
            return
        (plan,) = handle(ev.Drafted(self.now, n, 1_000_000))
        assert isinstance(plan, ev.Plan)
        plans = tuple(ev.FillPlan((10 * n + 1,), (5,), 64, 32) for _ in plan.candidates)
        for command in handle(ev.Planned(self.now, n, plans, _LOAD)):
            if isinstance(command, ev.Launch):
                content = draws.mix(command.fill) >> 1
                handle(ev.FillStarted(self.now, command.fill, 0, self.view(n, content)))

    def turn(self) -> None:
        """Open a branch; resolve the oldest one and end its workflow."""
        self.open()
        n, self.oldest = self.oldest, self.oldest + 1
        self.c.handle(ev.Resolved(self.now, n, (ev.Choice(1, 1),)))
        self.c.handle(ev.Closed(self.now, n))


def costs(branches: int, rounds: int) -> dict[str, list[float]]:
    """Return {what: us of each call} with `branches` branches in flight and a hundred results a branch."""
    world = Speculation(branches)
    gate, index = world.gate, world.c.index
    state = gate.new_state(toy_host())
    options = [FillOption(Candidate(k, k, 0.5, k), 0, 1, 64, 32, 10**9) for k in range(4)]
    view = world.c.load_view(world.now)
    out: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[..., object], *args: object) -> None:
        began = time.perf_counter_ns()
        call(*args)
        out.setdefault(name, []).append((time.perf_counter_ns() - began) / 1e3)

    for i in range(rounds):
        now, other = i * 10_000_000, 10**9 + i
        branch = BranchView(i, i, i % 8, 0, now, (), _MENU, _MENU)
        at = replace(view, now_ns=now, fills=i % 4, fills_max=8, fill_kv_tokens=0, fill_kv_tokens_max=4096)
        timed("gate: open a branch (Action 0)", gate.open, state, branch, at)
        timed("gate: admit of four candidates (Action 1)", gate.admit, state, branch, options, at)
        timed("reuse: lookup that hits", index.demanded, world.view(other, i * 37 % world.results))
        miss = world.view(other, -1 - i)
        timed("reuse: lookup that misses", index.demanded, miss)
        timed("reuse: store a result", index.finished, miss, 1, Provenance(other, 0), miss.read_set)
        index.close(other)
        timed("controller: a branch from open to settled", world.turn)
    return out
