"""Prefetching from the host tier on one replica: when a prefetcher is asked, what it may take, what becomes of it.

Asked at the plan of a batch that decodes only, while no earlier copy is under way (PBKV, section 4.3). Candidates are
runs of blocks that active workflows have read, that the host has and HBM lacks, below what HBM has. A run longer than
the budget offers its leading blocks: the paper's nodes are pages, and a node is as good as its pages apart (appendix
G.1). A copy holds no block until it arrives; one that finds no room then, or no parent, was in vain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from policies.api import Evictor, Prefetcher
from policies.views import BatchShape, Forecast, HostInfo
from sim.clock import PS_PER_NS, PS_PER_S
from sim.kv.missing import HostRun, Missing, blocks_of
from sim.kv.radix import Node
from sim.kv.readers import Readers
from sim.kv.tiers import HostTier
from traces.tables import CACHE_EVENTS

if TYPE_CHECKING:
    from sim.engine import Engine

_PREFETCH = CACHE_EVENTS.index("prefetch")


class Prefetch:
    """The prefetcher of one replica, and what it has under way. Methods but properties and `check` mutate.

    prefetched_blocks, used_blocks, dropped_blocks   that arrived; that a request hit before they were evicted; in vain
    outstanding_blocks   resident, and neither used nor evicted yet
    """

    def __init__(
        self, engine: Engine, tier: HostTier, prefetcher: Prefetcher[Any], host: HostInfo, readers: Readers
    ) -> None:
        self._engine = engine
        self._tier = tier
        self._policy = prefetcher
        self._state: Any = prefetcher.new_state(host)
        self._readers = readers
        self._missing = Missing(engine.tree, tier.tree, readers)
        self._by_block = tier.config.prefetch_grain == "block"
        self._keeps = not self._by_block and type(prefetcher).choose_offered is not Prefetcher.choose_offered
        self._block_bytes = engine.config.block_tokens * engine.profile.kv_bytes_per_token
        self._knows_retired = type(engine.evictor).retired is not Evictor.retired
        self._in_flight = False
        self._decode_steps = 0
        self._decode_ps = 0
        self.prefetched_blocks = 0
        self.used_blocks = 0
        self.dropped_blocks = 0
        self.outstanding_blocks = 0

    def forecast(self, forecast: Forecast) -> None:
        """Pass on a forecast."""
        self._policy.forecast(self._state, forecast)

    def workflow_finished(self, workflow: int, now_ns: int) -> None:
        """Pass on the end of a workflow."""
        self._policy.workflow_finished(self._state, workflow, now_ns)

    def ran(self, steps: int, duration_ps: int) -> None:
        """Decode-only steps ended: they count in the running average."""
        self._decode_steps += steps
        self._decode_ps += duration_ps

    def plan(self, shape: BatchShape) -> bool:
        """Begin the copies of this step; True when the next step must ask again though nothing happens.

        During a stretch without events free space only shrinks, retired space, forecasts and both trees stay, and the
        link gets idler; so nothing new can be chosen where there is no room, no candidate, or no wish at any budget.
        """
        engine = self._engine
        size = engine.config.block_tokens
        if self._in_flight:
            return False
        outstanding_tokens = self.outstanding_blocks * size
        displaceable = self._policy.displaceable_tokens(self._state, outstanding_tokens) // size
        if engine.free_blocks <= 0 and displaceable <= 0 and not self._retired_next():
            return False
        if not self._refresh():
            return False
        budget = self._link_blocks()
        runs = self._choose(budget, shape)
        if not runs:
            return bool(self._choose(1 if self._keeps else 1 << 40, shape))
        wanted = sum(run.end - run.start for run in runs)
        room = self._make_room(wanted, displaceable, runs)
        if room < wanted:
            runs = self._choose(room, shape)
            if not runs:
                return room > 0
        self._copy(runs)
        return True

    def used(self, node: Node) -> None:
        """A request hit the prefix that ends with `node`."""
        at: Node | None = node
        while at is not None and self.outstanding_blocks:
            if at.prefetched:
                at.prefetched = False
                blocks = at.end - at.start + at.evicted
                self.outstanding_blocks -= blocks
                self.used_blocks += blocks
                self._log("used", at.stage, blocks)
            at = at.parent

    def evicted(self, node: Node, blocks: int) -> None:
        """A node left HBM."""
        if node.prefetched:
            self.outstanding_blocks -= blocks

    def check(self) -> None:
        """Raise AssertionError when the books are wrong."""
        flagged = [n for n in self._engine.tree.nodes() if n.prefetched]
        assert self.outstanding_blocks == sum(n.end - n.start + n.evicted for n in flagged)
        assert self.used_blocks + self.outstanding_blocks <= self.prefetched_blocks

    # -- what there is to choose from --------------------------------------------------------------------------

    def _refresh(self) -> int:
        """Tell the prefetcher what is a candidate now and what no longer is; return how many there are."""
        gone, changed = self._missing.refresh(self._engine.env.now // PS_PER_NS)
        if self._keeps:
            for id in gone:
                self._policy.withdraw(self._state, id)
            for run in changed:
                self._policy.offer(self._state, run, self._missing.order(run.id))
        return len(self._missing)

    def _choose(self, blocks: int, shape: BatchShape) -> list[HostRun]:
        """Return the runs chosen within a budget, the first of them cut to it where it is longer."""
        if blocks <= 0:
            return []
        size, paths = self._engine.config.block_tokens, self._engine.paths
        if self._keeps:
            runs = cast("list[HostRun]", self._policy.choose_offered(self._state, blocks * size, shape))
            return [run.leading(blocks, paths) for run in runs]
        offered: list[HostRun] = []
        whole: set[int] = set()
        if self._by_block:
            offered += blocks_of(self._missing.runs(), paths)
            return [offered[row] for row in self._policy.choose(self._state, offered, blocks * size, shape)]
        for run in self._missing.runs():
            held = run.end - run.start
            if run.parent is None and held > blocks:
                offered.append(run.leading(blocks, paths))
            elif run.parent is None or run.parent.id in whole:
                offered.append(run.leading(held, paths))
                whole.add(run.id)
        return [offered[row] for row in self._policy.choose(self._state, offered, blocks * size, shape)]

    def _link_blocks(self) -> int:
        """Return the blocks an idle link moves during an average decode step, less what it is busy with."""
        if not self._decode_steps:
            return 0  # no step to average yet
        link = self._tier.to_device
        busy_ps = max(link.free_at_ps - self._engine.env.now, 0)
        spare_ps = self._decode_ps // self._decode_steps - busy_ps - link.copy_overhead_ps
        return max(spare_ps, 0) * link.bytes_per_s // PS_PER_S // self._block_bytes

    # -- room --------------------------------------------------------------------------------------------------

    def _retired_next(self) -> bool:
        if not self._knows_retired:
            return False
        engine = self._engine
        victim = engine.evictor.next_victim(engine.tree.state, engine.env.now // PS_PER_NS)
        return victim is not None and engine.evictor.retired(engine.tree.state, victim)

    def _make_room(self, blocks: int, displaceable: int, runs: list[HostRun]) -> int:
        """Evict for a copy of `blocks`, retired nodes, then active ones within `displaceable`; return the room.

        What the runs hang on stays. The evictor's order decides throughout.
        """
        engine = self._engine
        tree, evictor = engine.tree, engine.evictor
        now_ns = engine.env.now // PS_PER_NS
        pinned = []
        for run in runs:
            if run.parent is None:
                node = tree.find(run.segment, run.start)[0]
                if node is not None:
                    tree.pin(node)
                    pinned.append(node)
        while (short := blocks - engine.free_blocks) > 0 and (self._knows_retired or displaceable > 0):
            victim = evictor.next_victim(tree.state, now_ns)
            if victim is None:
                break
            assert isinstance(victim, Node)
            held = victim.end - victim.start
            take = min(held, short)
            if not (self._knows_retired and evictor.retired(tree.state, victim)):
                if tree.whole_leaves and held > displaceable:
                    break
                take = min(take, displaceable)
                if take <= 0:
                    break
                displaceable -= held if tree.whole_leaves else take
            engine.memory.evict(take)
        for node in pinned:
            tree.unpin(node, now_ns)
        return min(blocks, engine.free_blocks)

    # -- copies ------------------------------------------------------------------------------------------------

    def _copy(self, runs: list[HostRun]) -> None:
        engine = self._engine
        blocks = sum(run.end - run.start for run in runs)
        start_ps = max(engine.env.now, *(self._tier.readable_at(run.segment) for run in runs))
        ready_ps = self._tier.to_device.transfer(blocks * self._block_bytes, start_ps, len(runs))
        self._in_flight = True
        self._log("copy", -1, blocks)

        def arrived(_: Any) -> None:
            self._in_flight = False
            engine.settle_now()
            for run in runs:
                self._arrive(run)
            engine.reconsider()

        engine.after(ready_ps - engine.env.now, arrived)

    def _arrive(self, run: HostRun) -> None:
        """Put a copied run into HBM, not pinned, if its parent is there, it is not, and there is room."""
        engine = self._engine
        tree = engine.tree
        now_ns = engine.env.now // PS_PER_NS
        readers = [self._readers.access(w, a, now_ns) for w, a in run.readers if self._readers.active(w)]
        found, matched = tree.find(run.segment, run.end)
        blocks = run.end - matched
        if not readers or not run.start <= matched < run.end:
            self._drop(run)
            return
        if found is not None:
            found = tree.cut_at(found, matched, now_ns)
            tree.pin(found)
        if blocks <= engine.free_blocks:
            node = tree.insert(found, run.segment, readers[0].stage, run.end, readers[0])
            engine.evictor.restore(tree.state, node, readers)
            node.prefetched = True
            engine.log.add(
                "blocks",
                (now_ns, engine.index, _PREFETCH, node.id, blocks, readers[0].workflow, readers[0].stage),
            )
            self.prefetched_blocks += blocks
            self.outstanding_blocks += blocks
            tree.unpin(node, now_ns)
        else:
            self._drop(run)
        if found is not None:
            tree.unpin(found, now_ns)

    def _drop(self, run: HostRun) -> None:
        self.dropped_blocks += run.end - run.start
        self._log("drop", -1, run.end - run.start)

    def _log(self, action: str, stage: int, blocks: int) -> None:
        engine = self._engine
        now_ns = engine.env.now // PS_PER_NS
        engine.log.add("decisions", (now_ns, engine.index, "prefetchers", action, -1, stage, blocks))
