"""Opening: from a branch entry to launched fills (DynBranch section 3.4, Actions 0 and 1)."""

from __future__ import annotations

from policies._branch_book import Book
from policies._branch_config import BranchingConfig
from policies._branch_durations import Durations
from policies._branch_entry import Entry
from policies._branch_fills import Fill
from policies.branch_events import Draft, Drafted, FillPlan, Launch, Opened, Plan, Planned
from policies.views import Candidate, FillOption


class Opening:
    """Asks the gate and the candidate drafter, and launches. Methods mutate the book."""

    def __init__(self, book: Book, durations: Durations, config: BranchingConfig) -> None:
        self._book, self._durations, self._config = book, durations, config
        self._fills = 0

    def opened(self, e: Opened) -> None:
        """A window opens: Action 0."""
        self._book.host_load = e.load
        load = self._book.load_view(e.time_ns)
        depth, limit = 1, self._config.depth
        if e.parent_fill >= 0:
            parent = self._book.fills.get(e.parent_fill)
            if parent is None or not parent.live:
                return
            above = self._book.entries[parent.entry]
            depth, limit = above.depth + 1, above.depth_limit
            if depth > limit:
                return
        own = self._book.gate.depth(self._book.gate_state, e.branch)
        if own is not None and e.parent_fill < 0:
            limit = min(limit, own)
        entry = Entry(e.entry, e.branch, load, e.exclusive, e.parent_fill, depth, limit)
        assert e.entry not in self._book.entries, f"entry {e.entry} opened twice"
        self._book.entries[e.entry] = entry
        self._book.workflow(e.branch.workflow).entries.append(entry)
        if depth <= limit and self._book.gate.open(self._book.gate_state, e.branch, load):
            entry.opened = entry.drafting = True
            limit = self._config.candidates
            cost = self._book.candidate.cost_ns(self._book.candidate_state, e.branch, limit)
            self._book.out.append(Draft(e.entry, limit, cost))

    def drafted(self, e: Drafted) -> None:
        """Drafting is done: rank, and ask what filling would take."""
        entry = self._book.entries.get(e.entry)
        if entry is None or not entry.drafting:
            return
        entry.drafting = False
        entry.setup_ns += e.setup_ns
        if entry.resolved_ns >= 0:  # too late: drafting is paid for all the same (reading D8)
            self._book.try_settle(entry)
            return
        branch = entry.branch if e.branch is None else e.branch
        got = self._book.candidate.propose(self._book.candidate_state, branch, self._config.candidates)
        entry.candidates = tuple(got)
        if got:
            entry.planning = True
            self._book.out.append(Plan(e.entry, entry.candidates))

    def planned(self, e: Planned) -> None:
        """Plans are known: Action 1."""
        entry = self._book.entries.get(e.entry)
        if entry is None or not entry.planning:
            return
        entry.planning = False
        self._book.host_load = e.load
        if entry.resolved_ns >= 0:
            self._book.try_settle(entry)
            return
        plans = zip(entry.candidates, e.plans, strict=True)
        entry.refused = {c.rank: plan for c, plan in plans if plan is not None and plan.stages}
        self.admit(entry, e.time_ns)

    def admit(self, entry: Entry, now_ns: int) -> None:
        """Ask the gate about what is not filled yet, and launch what it admits and the ledger can hold."""
        ranks = sorted(entry.refused)
        if not ranks:
            return
        load = self._book.load_view(now_ns)
        options = [self._option(entry.candidates[rank], entry.refused[rank]) for rank in ranks]
        admission = self._book.gate.admit(self._book.gate_state, entry.branch, options, load)
        for row in admission.rows:
            plan, option = entry.refused[ranks[row]], options[row]
            if not self._book.ledger.reserve(self._fills, plan.kv_tokens):
                continue
            del entry.refused[ranks[row]]
            audit = row in admission.audits
            fill = Fill(
                self._fills, entry.id, entry.branch.workflow, option.candidate, plan, option, load, now_ns, audit
            )  # fmt: skip
            self._fills += 1
            fill.move("reserve")
            self._book.fills[fill.id] = fill
            entry.fills.append(fill)
            config = self._config
            self._book.out.append(
                Launch(entry.id, fill.id, option.candidate, plan, config.priority, config.routing)
            )

    def _option(self, candidate: Candidate, plan: FillPlan) -> FillOption:
        known = self._durations.path_ns(plan.keys)
        return FillOption(
            candidate, plan.keys[0], len(plan.stages), plan.kv_tokens, plan.prompt_tokens, known, plan.cached_tokens
        )  # fmt: skip
