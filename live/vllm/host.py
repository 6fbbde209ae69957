"""The eviction host: one block pool, one evictor, and the events between them. Knows vLLM's objects, imports none."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TypeVar

from live.recorder import TableRecorder
from live.vllm.attribution import Attribution, AttributionReader
from live.vllm.blocks import BlockTree
from live.vllm.copies import Copies, Load, LoadReport
from live.vllm.guard import PolicyGuard
from live.vllm.poolhands import Codec, Hands
from live.vllm.queue import PolicyQueue
from live.vllm.records import RunRecords
from live.vllm.settings import EvictionSettings
from live.vllm.steps import Pool, StepRecords
from live.vllm.tiering import PoolLog, Tiering
from policies.views import BatchShape, Forecast, HostInfo, WorkflowView
from traces.errors import InputError

T = TypeVar("T")
_LOG = logging.getLogger("vllm.foreserve")


class EvictionHost:
    """Puts an evictor in charge of a pool's free queue. Every method mutates.

    Order of events in vLLM: a hit takes the cached blocks (`touch`: pin, then hit), new blocks are taken from the
    queue (next_victim, remove), filled blocks become known as their tokens are scheduled (insert); the end or
    preemption of a request gives its blocks back (done, release), and a finished workflow is reported after that.
    Whatever goes wrong in a policy or in here, the engine goes on with its own order, and says so once.
    """

    def __init__(self, settings: EvictionSettings, clock_ns: Callable[[], int] = perf_counter_ns) -> None:
        self.settings = settings
        self.tables = TableRecorder()
        self.records = RunRecords(self.tables)
        self.steps = StepRecords(self.tables)
        self.failed = ""
        self._running: set[str] = set()
        self._clock_ns = clock_ns
        self._began_ns = clock_ns()
        self._reader = AttributionReader(settings.agents, self._say)
        self._evictor = settings.load_evictor()
        self._predictor = settings.load_predictor()
        self._prefetcher = settings.load_prefetcher()
        self.tiering: Tiering | None = None
        self._hit_blocks: dict[str, int] = {}
        self._awaited: list[int] = []
        self._unnoted = ""
        self._history: dict[int, list[int]] = {}
        self._finished: list[int] = []
        self._offered = Attribution()
        self._closed = False
        self._pool: Any = None
        self._stock: dict[str, Callable[..., Any]] = {}

    def bind(self, pool: Any, info: HostInfo, codec: Codec | None = None) -> None:
        """Take over `pool`, a `BlockPool` nobody has used yet. codec: how the pool names contents.

        Raises InputError for a pool this host cannot serve, and for a policy that refuses the host.
        """
        if not pool.enable_caching:
            raise InputError("the eviction host needs prefix caching: start the engine with it")
        if pool.hash_block_size != info.block_tokens:
            raise InputError(
                f"blocks of {info.block_tokens} tokens are hashed in {pool.hash_block_size}: the eviction host "
                "serves one hash a block"
            )
        limit_ns = round(self.settings.call_ms_max * 1e6)
        self.evictor = PolicyGuard(
            self._evictor, self._evictor.new_state(info), self._dropped("evictors"), limit_ns
        )
        self.predictor: PolicyGuard | None = None
        if self._predictor.active():
            state = self._predictor.new_state(info)
            self.predictor = PolicyGuard(self._predictor, state, self._dropped("predictors"), limit_ns)
        if self.settings.stock:
            self.evictor.dropped = "the engine's own order was asked for"
        self.tree = BlockTree(self.evictor, self.records, info.block_tokens)
        self._pool = pool
        self._codec = codec or Codec()
        self.queue = PolicyQueue(pool.free_block_queue, self.tree, self.now_ns, self._fail)
        pool.free_block_queue = self.queue
        for name in ("touch", "cache_full_blocks", "free_blocks", "reset_prefix_cache", "evict_blocks"):
            self._stock[name] = getattr(pool, name)
            setattr(pool, name, getattr(self, f"_{name}"))
        if self.settings.host_blocks:
            self._add_tier(info, limit_ns)

    def _add_tier(self, info: HostInfo, limit_ns: int) -> None:
        settings = self.settings
        if getattr(self._pool, "enable_kv_cache_events", False):
            raise InputError("the host tier does not publish KV events: start the engine without them")
        policy = settings.load_host_evictor()
        guard = PolicyGuard(policy, policy.new_state(info), self._dropped("host_tier"), limit_ns)
        prefetcher: PolicyGuard | None = None
        if self._prefetcher.active():
            state = self._prefetcher.new_state(info)
            prefetcher = PolicyGuard(self._prefetcher, state, self._dropped("prefetchers"), limit_ns)
        hands = Hands(self._pool, self._stock, self._codec, info.block_tokens)
        self.tiering = Tiering(
            settings, info, self.tree, self.evictor, (guard, prefetcher), self.records, hands, hands.block_of
        )
        self.tree.log = PoolLog(self.records, self.tiering)

    def now_ns(self) -> int:
        """Return the time since the host began. Does not mutate."""
        return self._clock_ns() - self._began_ns

    # -- what the scheduler says of requests ----------------------------------------------------------------

    def arrived(self, request: Any) -> None:
        """A request was added to the engine."""
        self._guarded(self._arrived, request)

    def offered(self, request: Any, hit_tokens: int) -> int:
        """The scheduler tries to admit a request, which found `hit_tokens` cached; `touch` follows, if any.

        Return how many tokens more the host tier has.
        """
        self._offered = self.records.sender(request.request_id)
        self.records.offered(request.request_id, hit_tokens)
        if self.tiering is None:
            return 0
        size = self.tree.block_tokens
        self._hit_blocks[request.request_id] = hit_tokens // size
        keys = self._keys(request, request.num_tokens - 1)
        found = self._guarded(
            self.tiering.offered, request.request_id, keys, hit_tokens // size, self.now_ns()
        )
        return (found or 0) * size

    def admitted(self, request: Any, blocks: list[int] | None = None, external_tokens: int = 0) -> None:
        """A request got its blocks, those of `external_tokens` after its hits to be loaded from the host."""
        now_ns = self.now_ns()
        self._running.add(request.request_id)
        self.records.admitted(request.request_id, request.num_tokens, now_ns, external_tokens)
        if self.tiering is not None:
            access = self.records.sender(request.request_id).access(now_ns)
            external = external_tokens // self.tree.block_tokens
            start = self._hit_blocks.pop(request.request_id, 0)
            target = list(blocks or ())[start : start + external]
            self._awaited += target
            self._guarded(self.tiering.admitted, request.request_id, target, access)
            self._guarded(self.tiering.read, access, self._keys(request, request.num_prompt_tokens))

    def step(
        self,
        scheduled_tokens: dict[str, int],
        output_tokens: Callable[[str], int],
        shape: BatchShape | None = None,
    ) -> Copies:
        """A step was scheduled; `output_tokens(request)` is how many it has generated. Return its copies.

        shape: where the step decodes only.
        """
        if self._finished:
            self._workflows_finished()
        starting = self.records.starting
        if starting:
            self.records.tokens_seen({r: output_tokens(r) for r in starting}, self.now_ns())
        for request, tokens in scheduled_tokens.items():
            self.records.scheduled(request, tokens)
        if self.tiering is None:
            return Copies()
        awaited, self._awaited = self._awaited, []
        copies = self._guarded(self.tiering.step, shape, self.now_ns())
        # What was promised and will not come is computed again.
        return copies or Copies(loads=[Load(-1, block, -1, True) for block in awaited])

    def opened(
        self,
        scheduled: dict[str, int],
        drafts: dict[str, int],
        preempted: Iterable[str],
        requests: dict[str, Any],
    ) -> None:
        """Note the step that was scheduled: its tokens, drafted ones among them, and who lost its blocks for it."""
        for name in preempted:
            self._running.discard(name)
            self.records.preempted(name, requests[name].num_tokens if name in requests else 0, self.now_ns())
        free = self._pool.free_block_queue.num_free_blocks
        pool = Pool(self._pool.num_gpu_blocks - 1 - free, free - len(self.tree.blank))
        waiting = self.records.open - len(self._running)
        self._noted(self.steps.opened, scheduled, drafts, requests, waiting, pool, self.now_ns())

    def closed(self, requests: dict[str, Any]) -> None:
        """A step's output was accounted."""
        self._noted(self.steps.closed, requests, self.now_ns())

    def landed(self, report: LoadReport) -> None:
        """The worker tells what became of a step's loads."""
        if self.tiering is not None:
            self._guarded(self.tiering.landed, report, self.now_ns())

    def ended(self, request: Any) -> None:
        """A request ended; its blocks are given back next."""
        sender = self.records.sender(request.request_id)
        if self.tiering is not None:
            self._hit_blocks.pop(request.request_id, None)
            keys = self._keys(request, request.num_tokens - 1)
            self._guarded(self.tiering.read, sender.access(self.now_ns()), keys)
        self._running.discard(request.request_id)
        drafted = self._noted(self.steps.ended, request.request_id, request.num_output_tokens)
        aborted = "ABORT" in request.status.name or "ERROR" in request.status.name
        self.records.ended(
            request.request_id,
            request.num_output_tokens,
            request.num_preemptions,
            "aborted" if aborted else "finished",
            self.now_ns(),
            drafted or (0, 0),
        )
        if sender.finished and sender.workflow >= 0:
            self._finished.append(sender.workflow)

    def shutdown(self) -> None:
        """Write the run's log, once."""
        if self._closed or self._pool is None:
            return
        self._closed = True
        self._workflows_finished()
        self.steps.flush({}, self.now_ns())
        self.records.close()
        now_ns = self.now_ns()
        guards = [("evictors", self.evictor), ("predictors", self.predictor)]
        if self.tiering is not None:
            guards += [("host_tier", self.tiering.host_evictor), ("prefetchers", self.tiering.prefetch_guard)]
        for family, guard in guards:
            for event in sorted(guard.calls) if guard is not None else ():
                assert guard is not None
                self.records.decided(family, f"calls.{event}", guard.calls[event], now_ns)
                self.records.decided(family, f"cost_ns.{event}", guard.cost_ns[event], now_ns)
        self.records.decided("evictors", "duplicates", self.tree.duplicates, now_ns)
        if self.settings.log_dir:
            try:
                self.tables.write(Path(self.settings.log_dir), self.about())
            except (OSError, InputError) as e:
                self._say(f"the run's log was not written: {e}")

    def about(self) -> dict[str, Any]:
        """Return what is known of the run beside its tables. Does not mutate."""
        return {
            "evictor": self.settings.evictor,
            "evictor_options": {f.name: getattr(self._evictor, f.name) for f in fields(self._evictor)},
            "predictor": self.settings.predictor,
            "predictor_options": {f.name: getattr(self._predictor, f.name) for f in fields(self._predictor)},
            "agents": list(self.settings.agents),
            "dropped": "" if self.settings.stock else self.evictor.dropped,
            "predictor_dropped": self.predictor.dropped if self.predictor is not None else "",
            "host_failed": self.failed,
            "duplicates": self.tree.duplicates,
            "kv_blocks": self._pool.num_gpu_blocks - 1,
            "process": os.getpid(),
            **({} if self.tiering is None else {"host_tier": self._about_tier(self.tiering)}),
        }

    def _about_tier(self, tiering: Tiering) -> dict[str, Any]:
        given = self.settings
        names = (
            "host_blocks",
            "host_evictor",
            "host_evictor_options",
            "host_write",
            "load_back",
            "min_load_tokens",
            "prefetcher",
        )
        options = {f.name: getattr(self._prefetcher, f.name) for f in fields(self._prefetcher)}
        return {**{n: getattr(given, n) for n in names}, "prefetcher_options": options, **tiering.about()}

    # -- what the pool does ---------------------------------------------------------------------------------

    def _touch(self, blocks: Any) -> None:
        self._stock["touch"](blocks)
        if blocks:
            self._guarded(lambda: self.tree.hit(list(blocks), self._offered.access(self.now_ns())))

    def _cache_full_blocks(
        self,
        request: Any,
        blocks: Any,
        num_cached_blocks: int,
        num_full_blocks: int,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self._stock["cache_full_blocks"](request, blocks, num_cached_blocks, num_full_blocks, *args, **kwargs)
        if num_cached_blocks < num_full_blocks:
            self._guarded(self._filled, request, blocks[:num_full_blocks], num_cached_blocks)

    def _filled(self, request: Any, blocks: Any, first: int) -> None:
        access = self.records.sender(request.request_id).access(self.now_ns())
        self.tree.insert(blocks, first, access)

    def _free_blocks(self, ordered_blocks: Iterable[Any]) -> None:
        blocks = list(ordered_blocks)
        self._guarded(lambda: self.tree.done(blocks, self.now_ns()))
        self._stock["free_blocks"](blocks)
        if self._finished:
            self._workflows_finished()

    def _reset_prefix_cache(self) -> bool:
        done = bool(self._stock["reset_prefix_cache"]())
        if done:
            self._guarded(self._clear)
        return done

    def _clear(self) -> None:
        if self.tiering is not None:
            self.tiering.clear(self.now_ns())
            self.tiering.resetting = True
        self.tree.clear(self.now_ns())
        if self.tiering is not None:
            self.tiering.resetting = False

    def _evict_blocks(self, block_ids: set[int]) -> None:
        self._stock["evict_blocks"](block_ids)
        if block_ids and not self.failed:
            self._fail("evict_blocks", RuntimeError("the engine took blocks out of the cache by number"))

    # -- policies -------------------------------------------------------------------------------------------

    def _arrived(self, request: Any) -> None:
        params = request.sampling_params
        sender = self._reader.read(params.extra_args if params is not None else None)
        now_ns = self.now_ns()
        self.records.released(request.request_id, sender, request.num_prompt_tokens, now_ns)
        workflow = sender.workflow
        if workflow < 0:
            return
        forecast = sender.forecast
        if self.predictor is not None:
            agents = self._history.setdefault(workflow, [])
            agents.append(sender.agent)
            view = WorkflowView(workflow, tuple(agents), now_ns)
            self.predictor.call("observe", view)
            own = self.predictor.call("forecast", view)
            forecast = own if forecast is None else forecast
        if forecast is not None:
            told = Forecast(workflow, now_ns, forecast)
            self.evictor.call("forecast", told)
            if self.tiering is not None:
                self.tiering.forecast(told)

    def _workflows_finished(self) -> None:
        finished, self._finished = self._finished, []
        for workflow in finished:
            now_ns = self.now_ns()
            self.evictor.call("workflow_finished", workflow, now_ns)
            if self.tiering is not None:
                self._guarded(self.tiering.workflow_finished, workflow, now_ns)
            agents = self._history.pop(workflow, None)
            if self.predictor is not None and agents is not None:
                view = WorkflowView(workflow, tuple(agents), now_ns)
                self.predictor.call("workflow_finished", view)
            self.records.workflow_ended(workflow, now_ns)

    # -- when something is wrong ----------------------------------------------------------------------------

    def _guarded(self, call: Callable[..., T], *args: Any) -> T | None:
        if self.failed:
            return None
        try:
            return call(*args)
        except Exception as e:
            self._fail(getattr(call, "__name__", "host"), e)
            return None

    def _noted(self, call: Callable[..., T], *args: Any) -> T | None:
        """Write something down; what cannot be costs rows, not the run."""
        try:
            return call(*args)
        except Exception as e:
            if not self._unnoted:
                self._unnoted = f"{type(e).__name__}: {e}"
                self._say(f"a step was not recorded: {self._unnoted}")
            return None

    def _keys(self, request: Any, tokens: int) -> list[bytes]:
        """Return the contents of a request's leading full blocks, as the pool names them."""
        return [self._codec.key(h) for h in request.block_hashes[: tokens // self.tree.block_tokens]]

    def _fail(self, where: str, error: Exception) -> None:
        """This host's own books are wrong: hand the pool back, with the engine's queue as it is."""
        if self.failed:
            return
        self.failed = f"{where}: {type(error).__name__}: {error}"
        self.queue.off = True
        self.evictor.dropped = self.evictor.dropped or self.failed
        self.records.decided("evictors", "host_failed", 1, self.now_ns())
        self._say(f"the eviction host stopped, the engine's own order from here on: {self.failed}")

    def _dropped(self, family: str) -> Callable[[str], None]:
        def report(line: str) -> None:
            self.records.decided(family, "dropped", 1, self.now_ns())
            self._say(line)

        return report

    def _say(self, line: str) -> None:
        _LOG.warning("foreserve: %s", line)
