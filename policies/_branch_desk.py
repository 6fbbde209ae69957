"""Demand: what serves a stage that canonical flow releases, if anything does (DynBranch sections 3.2 and 3.3)."""

from __future__ import annotations

from heapq import heappush

from policies import reuse_names
from policies._branch_book import Book
from policies._branch_config import BranchingConfig
from policies._branch_durations import Durations
from policies._branch_fills import Fill, State, Waiting
from policies.branch_events import Adopt, Demanded, Join, Miss, Promote, Race, Serve
from policies.guards import Guards
from policies.reuse_index import Provenance
from policies.views import StageView


class Desk:
    """Finished work first, outermost name first; then fills under an equal name; else a miss. Methods mutate."""

    def __init__(self, book: Book, durations: Durations, guards: Guards, config: BranchingConfig) -> None:
        self._book, self._durations, self._guards = book, durations, guards
        self._demand, self._patience = config.demand, config.patience

    def demanded(self, e: Demanded) -> bool:
        """Answer a demand; say whether the stage has to execute."""
        view, now_ns = e.view, e.time_ns
        hit = self._book.index.demanded(view)
        if hit is not None:
            values = hit.record.values if hit.record is not None else ()
            self._book.out.append(Serve(view.workflow, view.stage, values, hit.name, hit.rank))
            self._superseded(view, hit.name.stages, now_ns)
            return False
        fill, position = self._find(view, e.entry)
        if fill is not None and fill.positions[position].value is None:
            if self._demand != "drop":
                self._wait(fill, position, view, now_ns)
                return False
            self._book.cancel(fill, now_ns, "late")
        elif fill is not None and self.claim(fill, position, view, now_ns, 0):
            return False
        self._book.out.append(Miss(view.workflow, view.stage))
        if fill is None:
            self._too_late(view, now_ns)
        return True

    def _find(self, view: StageView, entry_id: int) -> tuple[Fill | None, int]:
        """Return the fill that holds or makes this stage's result under an equal name, and the position."""
        workflow = self._book.workflows.get(view.workflow)
        if not view.reusable or (workflow is None and not self._book.pool):
            return None, 0
        name = reuse_names.of_stage(self._guards.named(view))
        for fill, position in workflow.started.get(name, ()) if workflow is not None else ():
            entry = self._book.entries.get(fill.entry)
            if entry is None or entry.resolved_ns < 0 or entry.parent_fill >= 0:
                continue
            if not self._book.index.active and fill.entry != entry_id:
                continue  # reading D11: without reuse a promotion serves the launching branch only
            if fill.live and not fill.positions[position].taken and fill.waiting is None:
                return fill, position
        return self._book.pool.get(name, (None, 0))

    def claim(self, fill: Fill, position: int, view: StageView, now_ns: int, waited_ns: int) -> bool:
        """Promote a finished stage of a fill if all it read is still current; else it is a miss and the fill ends.

        waited_ns: since the demand, whether the stage was held or raced meanwhile.
        """
        at = fill.positions[position]
        assert at.value is not None
        at.taken = True
        if not self._book.index.fresh(at.reads):
            if fill.live:
                self._book.cancel(fill, now_ns, "stale")
            return False
        at.promoted = True
        fill.promoted += 1
        fill.saved_ns += max(at.exec_ns - waited_ns, 0)
        source = Provenance(view.workflow, view.stage, fill.id)
        self._book.index.finished(view, at.value, source, at.reads)
        self._book.out.append(Promote(view.workflow, view.stage, fill.id, position, at.value))
        self._adopt(fill, position)
        self._book.conclude(fill, now_ns)
        return True

    def _adopt(self, fill: Fill, position: int) -> None:
        workflow = self._book.workflows.get(fill.workflow)
        stage = fill.plan.stages[position]
        for entry in list(workflow.entries) if workflow is not None else ():
            if entry.parent_fill == fill.id and entry.branch.stage == stage:
                entry.parent_fill = -1
                self._book.out.append(Adopt(entry.id, fill.workflow, stage))
                self._book.observe(entry)
                self._book.try_settle(entry)

    def _wait(self, fill: Fill, position: int, view: StageView, now_ns: int) -> None:
        """A demand on a running fill: wait for it while it does not seem stuck, or race it."""
        patience = round(self._patience * self._durations.mean_ns(view.fingerprint))
        give_up = fill.positions[position].started_ns + patience
        racing = self._demand == "race" or (patience > 0 and now_ns >= give_up)
        deadline = give_up if patience > 0 and not racing else None
        fill.waiting = Waiting(view, now_ns, position, racing, deadline)
        self._book.workflow(fill.workflow).waiting[view.stage] = fill
        if deadline is not None:
            heappush(self._book.deadlines, (deadline, fill.id))
        self._book.out.append((Race if racing else Join)(view.workflow, view.stage, fill.id))

    def _superseded(self, view: StageView, stages: int, now_ns: int) -> None:
        """Finished work served the stages: what fills make of them is not needed."""
        scope = next((s for s in view.scopes if s.stages == stages), None)
        last = view.stage + (scope.span or scope.stages if scope is not None and stages > 1 else stages)
        for fill in self._book.winners(view.workflow):
            covered = [i for i, stage in enumerate(fill.plan.stages) if view.stage <= stage < last]
            if not covered:
                continue
            for i in covered:
                if i < len(fill.positions):
                    fill.positions[i].taken = True
            if fill.state is State.SHADOW:
                fill.end = "served"
                self._book.conclude(fill, now_ns)
            elif covered[-1] >= len(fill.positions) - 1:
                self._book.cancel(fill, now_ns, "served")

    def _too_late(self, view: StageView, now_ns: int) -> None:
        """The stage executes: a chosen fill that did not get to it, or rendered another input, has no use left."""
        for fill in self._book.winners(view.workflow):
            if view.stage in fill.plan.stages:
                position = fill.plan.stages.index(view.stage)
                if position >= len(fill.positions):
                    self._book.cancel(fill, now_ns, "late")
                elif fill.waiting is None:
                    self._book.cancel(fill, now_ns, "wrong argument")
