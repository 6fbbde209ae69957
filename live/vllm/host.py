"""The eviction host: one block pool, one evictor, and the events between them. Knows vLLM's objects, imports none."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from live.recorder import TableRecorder
from live.vllm.attribution import Attribution, AttributionReader
from live.vllm.blocks import BlockTree
from live.vllm.guard import PolicyGuard
from live.vllm.queue import PolicyQueue
from live.vllm.records import RunRecords
from live.vllm.settings import EvictionSettings
from policies.views import Forecast, HostInfo, WorkflowView
from traces.errors import InputError

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
        self.failed = ""
        self._clock_ns = clock_ns
        self._began_ns = clock_ns()
        self._reader = AttributionReader(settings.agents, self._say)
        self._evictor = settings.load_evictor()
        self._predictor = settings.load_predictor()
        self._history: dict[int, list[int]] = {}
        self._finished: list[int] = []
        self._offered = Attribution()
        self._closed = False
        self._pool: Any = None
        self._stock: dict[str, Callable[..., Any]] = {}

    def bind(self, pool: Any, info: HostInfo) -> None:
        """Take over `pool`, a `BlockPool` nobody has used yet.

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
        self.queue = PolicyQueue(pool.free_block_queue, self.tree, self.now_ns, self._fail)
        pool.free_block_queue = self.queue
        for name in ("touch", "cache_full_blocks", "free_blocks", "reset_prefix_cache", "evict_blocks"):
            self._stock[name] = getattr(pool, name)
            setattr(pool, name, getattr(self, f"_{name}"))

    def now_ns(self) -> int:
        """Return the time since the host began. Does not mutate."""
        return self._clock_ns() - self._began_ns

    # -- what the scheduler says of requests ----------------------------------------------------------------

    def arrived(self, request: Any) -> None:
        """A request was added to the engine."""
        self._guarded(self._arrived, request)

    def offered(self, request: Any, hit_tokens: int) -> None:
        """The scheduler tries to admit a request, which found `hit_tokens` cached; `touch` follows, if any."""
        self._offered = self.records.sender(request.request_id)
        self.records.offered(request.request_id, hit_tokens)

    def admitted(self, request: Any) -> None:
        """A request got its blocks."""
        self.records.admitted(request.request_id, request.num_tokens, self.now_ns())

    def step(self, scheduled_tokens: dict[str, int], output_tokens: Callable[[str], int]) -> None:
        """A step was scheduled; `output_tokens(request)` is how many it has generated."""
        if self._finished:
            self._workflows_finished()
        starting = self.records.starting
        if starting:
            self.records.tokens_seen({r: output_tokens(r) for r in starting}, self.now_ns())
        for request, tokens in scheduled_tokens.items():
            self.records.scheduled(request, tokens)

    def ended(self, request: Any) -> None:
        """A request ended; its blocks are given back next."""
        sender = self.records.sender(request.request_id)
        aborted = "ABORT" in request.status.name or "ERROR" in request.status.name
        self.records.ended(
            request.request_id,
            request.num_output_tokens,
            request.num_preemptions,
            "aborted" if aborted else "finished",
            self.now_ns(),
        )
        if sender.finished and sender.workflow >= 0:
            self._finished.append(sender.workflow)

    def shutdown(self) -> None:
        """Write the run's log, once."""
        if self._closed or self._pool is None:
            return
        self._closed = True
        self._workflows_finished()
        self.records.close()
        now_ns = self.now_ns()
        for family, guard in (("evictors", self.evictor), ("predictors", self.predictor)):
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
        }

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
            self._guarded(lambda: self.tree.clear(self.now_ns()))
        return done

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
            self.evictor.call("forecast", Forecast(workflow, now_ns, forecast))

    def _workflows_finished(self) -> None:
        finished, self._finished = self._finished, []
        for workflow in finished:
            now_ns = self.now_ns()
            self.evictor.call("workflow_finished", workflow, now_ns)
            agents = self._history.pop(workflow, None)
            if self.predictor is not None and agents is not None:
                view = WorkflowView(workflow, tuple(agents), now_ns)
                self.predictor.call("workflow_finished", view)
            self.records.workflow_ended(workflow, now_ns)

    # -- when something is wrong ----------------------------------------------------------------------------

    def _guarded(self, call: Callable[..., None], *args: Any) -> None:
        if self.failed:
            return
        try:
            call(*args)
        except Exception as e:
            self._fail(getattr(call, "__name__", "host"), e)

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
