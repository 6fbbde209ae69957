"""One replica: a vLLM-V1-like continuous-batching engine in virtual time.

A step is planned at its start (decodes first, then chunks of prefills in progress, then admissions), priced
from the profile, and accounted at its end. While nothing can change (no prefill, no request that could join,
no finish) many decode steps are planned as one stretch: their durations grow linearly with context, so their
sum is a polynomial in integers and the log is the one that single steps would have written.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import simpy

from policies.api import Bucketer, Evictor, Prefetcher
from policies.costs import Profile
from policies.views import BatchShape, Forecast, HostInfo, RequestView
from sim.batch import DecodeBatch
from sim.clock import PRIORITY_PLAN, PRIORITY_STEP_END, PS_PER_NS, Clock, call_after
from sim.config import EngineConfig
from sim.graphs import Graphs
from sim.kv.paths import PrefixPaths
from sim.kv.radix import Node
from sim.kv.readers import Readers
from sim.kv.tiers import HostTier
from sim.log import RunLog
from sim.memory import Memory
from sim.oracle import RecordedOracle
from sim.prefetch import Prefetch
from sim.pricing import StepPrices
from sim.request import Request
from sim.rows import RequestRows
from sim.shares import Shares
from sim.speculate import Drafted, Speculator
from sim.stretch import Stretch
from traces.tables import CACHE_EVENTS

_NO_DRAFT = Drafted()
_LAST = 1 << 60  # in the queue, behind every canonical request
_LOAD_BACK = CACHE_EVENTS.index("load_back")


class Engine:
    """A replica. `submit` and the timers it sets drive it; `done(request, finished)` reports each end.

    fill_ended(request, finished_ps, status) gets what would be the row of a fill; with it, shares of steps are kept.

    Every public method but the properties mutates. `total_blocks` is the KV pool of the replica at start.
    """

    def __init__(
        self,
        env: Clock,
        index: int,
        config: EngineConfig,
        profile: Profile,
        host: HostInfo,
        evictor: Evictor[Any],
        bucketer: Bucketer[Any],
        paths: PrefixPaths,
        total_blocks: int,
        host_tier: HostTier | None,
        log: RunLog,
        done: Callable[[Request, bool], None],
        *,
        lone: bool,
        oracle: RecordedOracle | None = None,
        speculator: Speculator | None = None,
        prefetcher: Prefetcher[Any] | None = None,
        fill_ended: Callable[[Request, int, str], None] | None = None,
        check: Callable[[Engine], None] | None = None,
    ) -> None:
        self.env = env
        self._oracle = oracle
        self._check = check
        self._speculator = speculator
        self.index = index
        self.config = config
        self.profile = profile
        self.paths = paths
        self.log = log
        self.host_tier = host_tier
        self._done = done
        self._lone = lone
        self._step_end_priority = PRIORITY_STEP_END + index
        self._end_ps = 0
        self._block_tokens = config.block_tokens
        self._max_tokens = config.max_num_batched_tokens
        self._max_len = config.max_model_len or profile.max_model_len
        self._by_priority = config.queue == "priority"
        self.evictor = evictor
        self.memory = Memory(env, index, config, evictor, host, paths, total_blocks, host_tier, log)
        self.tree = self.memory.tree
        # A policy whose order changes with time (a TTL) or with the size of what is left must be asked at
        # every step.
        kind = type(evictor)
        steady = kind.next_deadline is Evictor.next_deadline and kind.shrink is Evictor.shrink
        steady = steady and (oracle is None or lone)  # other replicas change what an oracle says
        # Drafts take blocks at the start of a step of their own.
        self._bulk_evict = not self.memory.radix and steady and host_tier is None and speculator is None
        self.prefetch: Prefetch | None = None
        self.readers: Readers | None = None
        if host_tier is not None and self.memory.caching:
            prefetches = prefetcher is not None and prefetcher.active()
            if prefetches or kind.restore is not Evictor.restore:
                self.readers = self.memory.readers = Readers(paths)
            if prefetches:
                assert prefetcher is not None
                assert self.readers is not None
                self.prefetch = self.memory.prefetch = Prefetch(
                    self, host_tier, prefetcher, host, self.readers
                )
        ahead = config.async_scheduling and not (speculator is not None and speculator.on_cpu)
        self._prices = StepPrices(profile, self._max_tokens, bucketer, host, scheduled_ahead=ahead)
        self.memory.drops_last_block = speculator is not None and speculator.drops_last_block
        self.graphs = Graphs(env, index, config, profile, self.memory, log)
        self._rows = RequestRows(env, index, log, fill_ended)

        self.batch = DecodeBatch(config.block_tokens)
        self.waiting_heap: list[tuple[int, int, int, Request]] = []
        self.running_requests: dict[int, Request] = {}
        self.prefilling: list[Request] = []
        self.queued_tokens = 0
        self._keeps_fills = fill_ended is not None
        self.shares = Shares() if self._keeps_fills else None
        self.fill_seqs = 0  # fills that decode
        self._fills_present = 0  # fills submitted and not ended
        self._canonical_ps = 0
        self._row_canonical = False
        self._low = False  # a fill of low priority was here
        self._aborting: list[Request] = []
        self._unaccounted: dict[Request, int] = {}  # chunks of the step that ends now
        self._loading: set[int] = set()  # requests whose copy from the host is under way
        self._dropped = 0  # entries of the waiting heap whose request was aborted
        self._sequence = 0
        self._timer: simpy.Event | None = None
        self._plan_pending = False
        self._paused = False
        self._gap_after_pause = False
        self.steps = 0
        self.stretches = 0
        self.busy_ps = 0
        self._owed_ps = 0
        # The stretch in progress: steps, start, duration of the first, growth a step, steps whose KV is
        # allocated.
        self._stretch = Stretch()
        self._allocated = 0
        self._freed = 0
        self._free_before = 0
        self._active_before = 0
        self._cached_before = 0
        self._ending = False
        self._last_end_ps = 0
        self._row_graph = 0
        self._row: tuple[int, ...] = ()
        self._chunks: list[tuple[Request, int]] = []

    # -- what routers see ------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Requests admitted and not ended."""
        return len(self.running_requests)

    @property
    def waiting(self) -> int:
        """Requests released and not admitted."""
        return len(self.waiting_heap) - self._dropped

    @property
    def kv_tokens_active(self) -> int:
        """KV tokens of blocks that running requests hold, counting steps begun by now."""
        self._settle(self._steps_begun())
        return (self.memory.private_blocks + self.tree.protected_blocks) * self._block_tokens

    @property
    def canonical_requests(self) -> int:
        """Canonical requests running or waiting."""
        return self.running + self.waiting - self._fills_present

    def canonical_busy_ps(self) -> int:
        """Return the time spent so far in steps with canonical work, the step in progress up to now included."""
        now_ps = (
            self.env.now - self._stretch.start_ps if self._timer is not None and self._row_canonical else 0
        )
        return self._canonical_ps + now_ps

    @property
    def free_blocks(self) -> int:
        """Blocks that hold nothing."""
        return self.memory.free_blocks

    def cached_tokens(self, request: RequestView) -> int:
        """Leading prompt tokens of `request` in HBM here, counting evictions up to now; touches nothing."""
        self._settle(self._steps_begun())
        blocks = min(
            self.paths.prompt_blocks[request.stage], (request.prompt_tokens - 1) // self._block_tokens
        )
        return self.tree.find(self.paths.prompt_segment[request.stage], blocks)[1] * self._block_tokens

    @property
    def settled_ns(self) -> int:
        """Time before which this replica logs no further step or eviction."""
        return (self._stretch.start_ps if self._timer is not None else self.env.now) // PS_PER_NS

    # -- what happens to it ----------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Take a request now; rejects at once what the engine could never serve."""
        total = request.prompt_tokens + request.output_tokens
        kv_blocks = -(-(total - 1 if request.output_tokens else total) // self._block_tokens)
        if total > self._max_len:
            self._reject(request, "longer than max_model_len")
            return
        if not self.memory.fits(kv_blocks):
            self._reject(request, "larger than the KV pool")
            return
        self.graphs.spared_blocks = max(self.graphs.spared_blocks, kv_blocks)
        request.sequence = self._sequence
        self._sequence += 1
        self._fills_present += request.fill
        self.queued_tokens += request.prompt_tokens
        self._enqueue(request)
        if self._timer is not None:
            self._cut()
        elif not self._ending:
            self._request_plan()

    def abort(self, request: Request) -> None:
        """Stop a request that has not ended; nothing is reported back. A step in progress runs to its end with it."""
        if request.ended:
            return
        if request.number in self.running_requests:
            if self._timer is not None:
                self._aborting.append(request)
                self._cut()
                return
            self._drop(request)
            if not self._ending:
                self._request_plan()
            return
        request.ended = True
        self._fills_present -= request.fill
        self._dropped += 1
        if request.preemptions == 0:
            self.queued_tokens -= request.prompt_tokens
        self._rows.end(request, self.env.now, "aborted")
        self.reconsider()

    def forecast(self, forecast: Forecast) -> None:
        """Pass a predictor's forecast to the evictor and the prefetcher."""
        self._settle(self._steps_begun())
        self.evictor.forecast(self.tree.state, forecast)
        if self.host_tier is not None:
            self.host_tier.forecast(forecast)
        if self.prefetch is not None:
            self.prefetch.forecast(forecast)
            self._cut()

    def owe(self, cost_ps: int) -> None:
        """The next step takes longer by this: work that shares its stream."""
        self._owed_ps += cost_ps
        self._cut()

    def workflow_finished(self, workflow: int) -> None:
        """Tell the evictor and the prefetcher that no further request of the workflow will come."""
        now_ns = self.env.now // PS_PER_NS
        self._settle(self._steps_begun())
        self.evictor.workflow_finished(self.tree.state, workflow, now_ns)
        if self.host_tier is not None:
            self.host_tier.workflow_finished(workflow, now_ns)
        if self.readers is not None:
            self.readers.finish(workflow)
        if self.prefetch is not None:
            self.prefetch.workflow_finished(workflow, now_ns)
            self._cut()

    @property
    def stepping(self) -> bool:
        """Whether a step runs or is about to."""
        return self._timer is not None or self._plan_pending or self._ending

    def settle_now(self) -> None:
        """Account the KV of steps begun by now, before something else of this instant moves blocks."""
        self._settle(self._steps_begun())

    def reconsider(self) -> None:
        """Something of this instant may change what is planned: end the stretch, or plan if there is none."""
        if self._timer is not None:
            self._cut()
        elif not self._ending:
            self._request_plan()

    def after(self, delay_ps: int, callback: Callable[[simpy.Event], None]) -> None:
        """Call back in `delay_ps`, before any step that ends or is planned at that instant."""
        call_after(self.env, delay_ps, 0, callback)

    def pause(self) -> None:
        """Stop after the step in progress (fault injection)."""
        self._paused = True
        self._cut()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._paused = False
        self._gap_after_pause = True
        if self._timer is None:
            self._request_plan()

    def stop(self) -> None:
        """Account the steps that ended by now; the rest of the stretch and open requests stay incomplete."""
        if self._timer is not None:
            self._settle(self._steps_begun())
            self._timer = None
            ended = self._stretch.ended_by(self.env.now)
            if ended:
                self._close_stretch(ended)
                self.batch.advance(ended)
        for request in self._aborting:
            if not request.ended:
                self._drop(request)
        for request in list(self.running_requests.values()):
            if request.join_step >= 0:
                self._leave_batch(request)
            self._rows.end(request, -1, "incomplete")
        for _, _, _, request in sorted(self.waiting_heap, key=lambda entry: entry[:3]):
            if not request.ended:
                self._rows.end(request, -1, "incomplete")

    # -- the step loop ---------------------------------------------------------------------------------------

    def _request_plan(self) -> None:
        """Plan when everything of this instant has arrived."""
        if not self._plan_pending:
            self._plan_pending = True
            call_after(self.env, 0, PRIORITY_PLAN + self.index, self._on_plan)

    def _on_plan(self, _: simpy.Event) -> None:
        self._plan_pending = False
        if self._timer is None:
            self._plan()

    def _on_timer(self, event: simpy.Event) -> None:
        if event is not self._timer:
            return  # a stretch that was cut
        self._timer = None
        self._ending = True
        n = self._stretch.steps
        self._settle(n)
        self._close_stretch(n)
        self.batch.advance(n)
        if self._speculator is not None:
            self._verify()
        chunks, self._chunks = self._chunks, []
        if self._keeps_fills:
            self._unaccounted = dict(chunks)
            aborting, self._aborting = self._aborting, []
            for request in aborting:
                if not request.ended:
                    self._drop(request)
        # In the order of the running list, as vLLM does: who ends first is evicted first.
        if self.batch.steps_to_finish() <= 0:
            finished = self.batch.pop_finished()
            if self._keeps_fills:
                for request in finished:
                    self._left_batch(request)
            for request in finished:
                if not request.ended:
                    self._finish(request)
        for request, tokens in chunks:
            if not request.ended:
                if self._unaccounted:
                    self._unaccounted.pop(request, None)
                self._prefilled(request, tokens)
        self._ending = False
        # A lone replica plans at once, unless something else of this instant may still arrive.
        if self._lone and self.env.peek() > self.env.now:
            self._plan()
        else:
            self._request_plan()

    def _plan(self) -> None:
        """Choose what the next step does and set its timer; a stretch of steps if nothing can change."""
        if self._paused:
            return
        if self._check is not None:
            self._check(self)
        batch = self.batch
        phases, size = batch.phases, self._block_tokens
        preempted = False
        if self.graphs.owed_blocks:
            self.graphs.take()
        # What is not active is free or evictable. An empty batch needs nothing: its residues are all zero.
        while (need := phases[batch.step % size]) > (
            self.memory.total_blocks - self.memory.private_blocks - self.tree.protected_blocks
        ):
            self._preempt()
            preempted = True
        self._begin_stretch()
        waiting = self.waiting_heap
        while self._dropped and waiting and waiting[0][3].ended:
            heappop(waiting)
            self._dropped -= 1
        seats = len(self.running_requests) < self.config.max_num_seqs
        if self.prefilling or (self.waiting_heap and seats and not preempted):
            self._settle(1)  # decodes come first, also for memory
            chunks = self._schedule_prefills(self._max_tokens - batch.seqs, not preempted)
            if chunks:
                self._plan_mixed(chunks, need)
                return
        if batch.seqs:
            # Who was just preempted may fit again at the next step, which must therefore be planned.
            self._plan_decode(need, alone=preempted)

    def _begin_stretch(self) -> None:
        resident, protected, private = (
            self.tree.resident_blocks,
            self.tree.protected_blocks,
            self.memory.private_blocks,
        )
        self._stretch.begin(self.env.now)
        self._allocated = self._freed = 0
        self._free_before = self.memory.total_blocks - private - resident
        self._active_before = private + protected
        self._cached_before = resident - protected

    def _plan_decode(self, need: int, *, alone: bool) -> None:
        batch = self.batch
        seqs = batch.seqs
        tree = self.tree
        d = _NO_DRAFT
        if self._speculator is not None:
            self._settle(1)
            d = self._draft(0)
        if self._bulk_evict:
            # Nothing can reorder the cache during the stretch, so its evictions are carried out when it ends.
            available = self._free_before + self._cached_before
        else:
            self._settle(1)
            if self.prefetch is not None:
                shape = BatchShape(seqs, d.width, seqs + d.tokens, 0, batch.context_tokens, d.widest)
                alone = self.prefetch.plan(shape) or alone
            available = need + self.free_blocks
            self._active_before = self.memory.private_blocks + tree.protected_blocks - need
            self._cached_before = tree.resident_blocks - tree.protected_blocks
        self._stretch.steps = 1
        prices = self._prices
        longest = self._longest_context() if prices.reads_context else 0
        read_tokens = batch.context_tokens + d.read_tokens
        shape = BatchShape(seqs, d.width, seqs + d.tokens, 0, read_tokens, d.widest, longest)
        owed_ps, self._owed_ps = self._owed_ps, 0
        self._stretch.first_ps, graph = prices.step(shape, d.cost_ps + owed_ps)
        self._stretch.growth_ps = prices.growth_ps * seqs
        if prices.built:
            self.graphs.built(prices.built)
            alone = True
        alone = alone or prices.reads_context or owed_ps > 0
        if self.config.fast_forward and not alone and self._speculator is None:
            self._stretch.steps = max(1, batch.steps_within(available, batch.steps_to_finish()))
        self._open_row(seqs, 0, 0, graph)
        self._set_timer()

    def _plan_mixed(self, chunks: list[tuple[Request, int]], need: int) -> None:
        batch = self.batch
        seqs = batch.seqs
        prefill_tokens = 0
        attention_ps = 0
        prices = self._prices
        for request, chunk in chunks:
            prefill_tokens += chunk
            attention_ps += prices.attention_ps(chunk, request.computed_tokens)
        d = self._draft(prefill_tokens)
        self._stretch.steps = 1
        tokens = seqs + d.tokens + prefill_tokens
        read_tokens = batch.context_tokens + d.read_tokens
        shape = BatchShape(seqs, 0, tokens, len(chunks), read_tokens, d.widest)
        owed_ps, self._owed_ps = self._owed_ps, 0
        self._stretch.first_ps, graph = prices.step(shape, attention_ps + d.cost_ps + owed_ps)
        self._stretch.growth_ps = 0
        if prices.built:
            self.graphs.built(prices.built)
        self._chunks = chunks
        # Admissions moved blocks at this instant; the row tells what holds once they are done.
        tree = self.tree
        self._active_before = self.memory.private_blocks + tree.protected_blocks - need
        self._cached_before = tree.resident_blocks - tree.protected_blocks
        self._open_row(seqs, len(chunks), prefill_tokens, graph)
        self._set_timer()

    def _longest_context(self) -> int:
        """Return the longest context of a decoding sequence."""
        step = self.batch.step
        decoding = (r for r in self.running_requests.values() if r.join_step >= 0)
        return max((r.computed_tokens + step - r.join_step + 1 for r in decoding), default=0)

    def _draft(self, prefill_tokens: int) -> Drafted:
        """Draft for the step about to run, and take the KV blocks that the drafts need."""
        if self._speculator is None or not self.batch.seqs:
            return _NO_DRAFT
        decoding = [r for r in self.running_requests.values() if r.join_step >= 0 and not r.fill]
        spare_tokens = self._max_tokens - self.batch.seqs - prefill_tokens
        spare_blocks = self.free_blocks + self.tree.evictable_blocks
        d = self._speculator.draft(self.batch, decoding, spare_tokens, spare_blocks, self.env.now)
        if d.blocks:
            if d.blocks > self.free_blocks:
                self.memory.evict(d.blocks - self.free_blocks)
            self.memory.private_blocks += d.blocks
        return d

    def _verify(self) -> None:
        """Commit what the step accepted beyond one token a sequence; the rejected tails leave no KV."""
        assert self._speculator is not None
        batch, size = self.batch, self._block_tokens
        accepted_by, blocks = self._speculator.verify(batch)
        self.memory.private_blocks -= blocks
        for request, accepted in accepted_by:
            batch.leave(request)
            kv = request.computed_tokens
            request.generated += accepted
            request.computed_tokens += accepted
            self.memory.private_blocks += -(-(kv + accepted) // size) - -(-kv // size)
            batch.join(request)

    def _open_row(self, seqs: int, prefill_seqs: int, prefill_tokens: int, graph: int) -> None:
        continuing = seqs - self.fill_seqs
        if self._gap_after_pause:
            continuing = 0
            self._gap_after_pause = False
            self._log_pause_gaps()
        self._row = (
            seqs, continuing, prefill_seqs, prefill_tokens, self.batch.context_tokens,
            len(self.waiting_heap) - self._dropped, self._active_before, self._cached_before, self.fill_seqs,
        )  # fmt: skip
        self._row_graph = graph
        if self._keeps_fills:
            self._row_canonical = seqs > self.fill_seqs or any(not r.fill for r, _ in self._chunks)

    def _set_timer(self) -> None:
        self._end_ps = self._stretch.time_of(self._stretch.steps)
        delay_ps = self._end_ps - self.env.now
        self._timer = call_after(self.env, delay_ps, self._step_end_priority, self._on_timer)

    def _close_stretch(self, n: int) -> None:
        seqs, continuing, prefill_seqs, prefill_tokens, context, waiting, active, cached, fills = self._row
        drafted, accepted = (0, 0) if self._speculator is None else self._speculator.counts()
        # Only bulk eviction takes cached blocks during a stretch; elsewhere they left before its row was opened.
        free = self._free_before if self._bulk_evict and not prefill_seqs else 1 << 40
        stretch = self._stretch
        self.log.stretch(
            (self.index, n, stretch.start_ps, stretch.first_ps, stretch.growth_ps, seqs, continuing, prefill_seqs,
             prefill_tokens, context, waiting, active, cached, free, self.batch.step, drafted, accepted,
             self._row_graph, fills),
            self.batch.phases, n,
        )  # fmt: skip
        self.steps += n
        self.stretches += 1
        self._last_end_ps = self._end_ps if n == self._stretch.steps else self._stretch.time_of(n)
        self.busy_ps += self._last_end_ps - self._stretch.start_ps
        if self.shares is not None:
            took_ps = self._last_end_ps - self._stretch.start_ps
            self._canonical_ps += took_ps if self._row_canonical else 0
            tokens = seqs + drafted + prefill_tokens
            self.shares.ran(took_ps, tokens)
            for request, chunk in self._chunks:
                request.share_ps += took_ps * chunk // tokens
        if self.prefetch is not None and not prefill_seqs:
            self.prefetch.ran(n, self._last_end_ps - self._stretch.start_ps)

    def _steps_begun(self) -> int:
        return 0 if self._timer is None else self._stretch.begun_by(self.env.now)

    def _cut(self) -> None:
        """End the stretch at the next step boundary, since what follows may change."""
        if self._timer is not None and self._stretch.cut_at(self.env.now):
            self._set_timer()

    def _settle(self, steps: int) -> None:
        """Allocate the KV blocks of the stretch's first `steps` steps, evicting for what is short."""
        done = self._allocated
        if steps <= done:
            return
        batch = self.batch
        new = batch.new_blocks(steps) - (batch.new_blocks(done) if done else 0)
        self._allocated = steps
        if not new:
            return
        tree = self.tree
        short = new + self.memory.private_blocks + tree.resident_blocks - self.memory.total_blocks
        if short > 0:
            self._freed += self.tree.evict(
                short, self._stretch.start_ps // PS_PER_NS, self._evicted_by_decode
            )
        self.memory.private_blocks += new

    # -- prefill and admission -------------------------------------------------------------------------------

    def _schedule_prefills(self, budget: int, admit: bool) -> list[tuple[Request, int]]:
        chunks: list[tuple[Request, int]] = []
        for request in self.prefilling:
            if budget <= 0:
                return chunks
            budget -= self._add_chunk(request, budget, chunks)
        limit = self.config.max_num_seqs
        while admit and budget > 0 and self.waiting_heap and len(self.running_requests) < limit:
            request = self.waiting_heap[0][3]
            if request.ended:
                heappop(self.waiting_heap)
                self._dropped -= 1
                continue
            if not self.memory.reserve(request):
                break
            heappop(self.waiting_heap)
            self.running_requests[request.number] = request
            self.queued_tokens -= request.prompt_tokens if request.preemptions == 0 else 0
            if request.admitted_ps < 0:
                request.admitted_ps = self.env.now
            if self._oracle is not None and not request.fill:
                self._oracle.admitted(request.stage)
            if self.host_tier is not None and self._load_back(request):
                continue
            self.prefilling.append(request)
            budget -= self._add_chunk(request, budget, chunks)
        return chunks

    def _add_chunk(self, request: Request, budget: int, chunks: list[tuple[Request, int]]) -> int:
        chunk = min(budget, request.target_tokens - request.computed_tokens)
        chunks.append((request, chunk))
        if not self.memory.radix:
            # vLLM makes a block known when its tokens are scheduled: the same step writes it before it is
            # read.
            self.memory.publish(
                request, (request.computed_tokens + chunk) // self._block_tokens, self.env.now // PS_PER_NS
            )
        return chunk

    def _load_back(self, request: Request) -> bool:
        """Bring what the host tier has beyond HBM; True when the request waits for the copy."""
        tier = self.host_tier
        assert tier is not None
        have = request.computed_tokens
        ready_ps, tokens = tier.load(request, have, self.env.now, self.profile)
        if not tokens:
            return False
        request.computed_tokens += tokens
        if request.preemptions == 0:
            request.host_hit_tokens = tokens
        else:
            request.recomputed_tokens -= tokens
            if request.recomputed_tokens < 0:
                request.host_hit_tokens -= request.recomputed_tokens
                request.recomputed_tokens = 0
        now_ns = self.env.now // PS_PER_NS
        self.log.add(
            "blocks",
            (
                now_ns,
                self.index,
                _LOAD_BACK,
                -1,
                tokens // self._block_tokens,
                request.workflow,
                request.stage,
            ),
        )
        version = request.version
        self._loading.add(request.number)

        def arrived(_: simpy.Event) -> None:
            if request.version == version and request.number in self.running_requests:
                self.memory.publish(
                    request, request.computed_tokens // self._block_tokens, self.env.now // PS_PER_NS
                )
                self.memory.restore(request)
                self._loading.discard(request.number)
                self.prefilling.append(request)
                if self._timer is None:
                    self._request_plan()
                else:
                    self._cut()

        call_after(self.env, ready_ps - self.env.now, 0, arrived)
        return True

    def _prefilled(self, request: Request, tokens: int) -> None:
        """Account a chunk that ended now; the last one emits a token."""
        request.computed_tokens += tokens
        request.prefilled_tokens += tokens
        now = self.env.now
        if self.memory.radix:
            self.memory.publish(request, request.computed_tokens // self._block_tokens, now // PS_PER_NS)
        if request.computed_tokens < request.target_tokens:
            return
        self.prefilling.remove(request)
        if request.output_tokens == 0:
            self._finish(request)
            return
        if request.first_token_ps < 0:
            request.first_token_ps = now
        else:
            gap_ns = now // PS_PER_NS - request.last_token_ps // PS_PER_NS
            self._rows.gap(request, gap_ns)
        request.generated += 1
        if request.generated == request.output_tokens:
            self._finish(request)
        else:
            if self._speculator is not None and not request.fill:
                self._speculator.begin(request)
            self.batch.join(request)
            self.fill_seqs += request.fill
            if self.shares is not None:
                self.shares.join(request)

    # -- ends ------------------------------------------------------------------------------------------------

    def _finish(self, request: Request) -> None:
        if self.readers is not None:
            stage = request.stage
            blocks = min(self.paths.sequence_blocks[stage], request.computed_tokens // self._block_tokens)
            self.readers.read(
                request.workflow, request.agent, stage, self.paths.sequence_segment[stage], blocks
            )
        self.memory.give_back(request, keep=True)
        del self.running_requests[request.number]
        request.ended = True
        self._fills_present -= request.fill
        if self._speculator is not None and not request.fill:
            self._speculator.finish(request)
        self._rows.end(request, self.env.now, "finished")
        self._done(request, True)

    def _preempt(self) -> None:
        """Take back the KV of the request admitted last (lowest priority first), to be recomputed."""
        running = self.running_requests
        if self._by_priority:
            request = max(running.values(), key=lambda r: (r.low, r.priority, r.sequence))
        else:
            last = next((r for r in reversed(running.values()) if r.low), None) if self._low else None
            request = last or running[next(reversed(running))]
        del running[request.number]
        computed = True
        request.unreached_tokens = request.target_tokens - request.computed_tokens
        if request.join_step >= 0:
            self._leave_batch(request)
            request.last_token_ps = self._last_end_ps
            request.unreached_tokens = 0
        elif request in self.prefilling:
            self.prefilling.remove(request)
        else:
            computed = False  # its copy from the host has not arrived
            self._loading.discard(request.number)
        # vLLM frees blocks into the cache's queue, where they may still be hit; a radix tree drops what is
        # private.
        self.memory.give_back(request, keep=computed and not self.memory.radix)
        request.version += 1
        request.preemptions += 1
        request.target_tokens = request.prompt_tokens + request.generated
        request.computed_tokens = 0
        self._enqueue(request)
        self._rows.decision("preempt", request, request.target_tokens)

    def _drop(self, request: Request) -> None:
        """Take an aborted request out between steps; its full blocks stay in the cache."""
        if request.join_step >= 0:
            self._leave_batch(request)
        chunk = self._unaccounted.pop(request, 0)
        request.computed_tokens += chunk
        request.prefilled_tokens += chunk
        if request in self.prefilling:
            self.prefilling.remove(request)
        self.memory.give_back(request, keep=request.number not in self._loading)
        self._loading.discard(request.number)
        del self.running_requests[request.number]
        if self._speculator is not None and not request.fill and request.generated > 0:
            self._speculator.finish(request)
        request.ended = True
        self._fills_present -= request.fill
        request.version += 1
        self._rows.end(request, self.env.now, "aborted")

    def _leave_batch(self, request: Request) -> None:
        self.batch.leave(request)
        self._left_batch(request)

    def _left_batch(self, request: Request) -> None:
        self.fill_seqs -= request.fill
        if self.shares is not None:
            self.shares.leave(request)

    def _reject(self, request: Request, reason: str) -> None:
        request.ended = True
        self._rows.end(request, self.env.now, "rejected", reason)
        self._done(request, False)

    def _enqueue(self, request: Request) -> None:
        priority = request.priority if self._by_priority else 0
        if request.low:
            priority = _LAST
            self._low = True
        heappush(self.waiting_heap, (priority, request.sequence, request.version, request))

    def _evicted_by_decode(self, node: Node, blocks: int, freed: int) -> None:
        # The time is that of the step which took the node's last block, had each step been its own event.
        step = 0
        if self._bulk_evict:
            step = self.batch.steps_within(self._free_before + self._freed + freed - 1, self._stretch.steps)
        self.memory.evict_row(node, blocks, self._stretch.time_of(step))

    def _log_pause_gaps(self) -> None:
        gap_ns = self._stretch.time_of(1) // PS_PER_NS - self._last_end_ps // PS_PER_NS
        for request in self.running_requests.values():
            if request.join_step >= 0:
                self._rows.gap(request, gap_ns)
