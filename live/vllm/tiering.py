"""The host tier of one pool: what is stored, loaded back and prefetched, in answer to what the pool and requests do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from live.vllm.blocks import BlockTree, Node
from live.vllm.copies import Copies, LoadReport
from live.vllm.guard import PolicyGuard
from live.vllm.prefetch import LivePrefetch, PoolHands
from live.vllm.readers import PathReaders
from live.vllm.records import RunRecords
from live.vllm.settings import EvictionSettings
from live.vllm.tier import HostTier, path_of
from policies.views import Access, BatchShape, Forecast, HostInfo
from traces.tables import CACHE_EVENTS

_LOAD, _WRITE, _DROP, _PREFETCH = (
    CACHE_EVENTS.index(e) for e in ("load_back", "write_host", "drop_host", "prefetch")
)


class _HostLog:
    """Writes the host's own tree down (`live.vllm.blocks.BlockLog`)."""

    def __init__(self, records: RunRecords) -> None:
        self._records = records

    def inserted(self, node: Node, blocks: int, access: Access) -> None:
        """The host stores `blocks` contents more."""
        self._records.moved(_WRITE, node, blocks, access)
        for at in reversed(_run(node, blocks)):
            self._records.content("host", at, access.now_ns)

    def hit(self, node: Node, blocks: int, access: Access) -> None:
        """A request loads from the host: the pool's side of it has a row."""

    def evicted(self, node: Node, now_ns: int) -> None:
        """The host gave up a content."""
        self._records.moved(_DROP, node, 1, Access(now_ns, -1, -1, -1))


class PoolLog:
    """Writes the pool's tree down, and tells the tier; what was prefetched has a row of its own."""

    def __init__(self, records: RunRecords, tiering: Tiering) -> None:
        self._records = records
        self._tiering = tiering

    def inserted(self, node: Node, blocks: int, access: Access) -> None:
        """`blocks` new contents, the deepest of them `node`."""
        if not self._tiering.landing:
            self._records.inserted(node, blocks, access)
        for at in reversed(_run(node, blocks)):
            self._records.content("pool", at, access.now_ns)
        self._tiering.inserted(node, access)

    def hit(self, node: Node, blocks: int, access: Access) -> None:
        """A request found its leading `blocks` blocks."""
        self._records.hit(node, blocks, access)
        self._tiering.hit(node, access)

    def evicted(self, node: Node, now_ns: int) -> None:
        """A content left."""
        self._records.evicted(node, now_ns)
        self._tiering.evicted(node, now_ns)


class Tiering:
    """Hears what happens to the pool (from `PoolLog`), to requests and workflows. Every method but `about` mutates.

    block_of   block of the pool that holds a content
    """

    def __init__(
        self,
        settings: EvictionSettings,
        info: HostInfo,
        pool: BlockTree,
        evictor: PolicyGuard,
        guards: tuple[PolicyGuard, PolicyGuard | None],
        records: RunRecords,
        hands: PoolHands,
        block_of: Callable[[bytes], int | None],
    ) -> None:
        self._settings = settings
        self._info = info
        self._evictor = evictor
        self._pool = pool
        self._records = records
        self.host_evictor, prefetcher = guards
        self.readers = PathReaders()
        self.tier = HostTier(
            settings.host_blocks, self.host_evictor, _HostLog(records), info.block_tokens, block_of
        )
        self.prefetch_guard = prefetcher
        self.prefetch: LivePrefetch | None = None
        if prefetcher is not None:
            self.prefetch = LivePrefetch(
                prefetcher, evictor, info, pool, self.tier, self.readers, hands, settings.pcie_bytes_per_s,
                self._prefetched,
            )  # fmt: skip
        self._planned: dict[str, tuple[list[bytes], int]] = {}
        self._last_decode_ns = -1
        self.corrupt = 0
        self.landing = False
        self.resetting = False

    # -- the pool -------------------------------------------------------------------------------------------

    def inserted(self, node: Node, access: Access) -> None:
        """The pool knows new contents, which this step computes."""
        if self._settings.host_write == "write_through":
            self.tier.store(path_of(node), access, leaving=False)

    def hit(self, node: Node, access: Access) -> None:
        """A request found contents in the pool."""
        if self._settings.host_write == "write_through_selective":
            self.tier.store(path_of(node), access, leaving=False)
        if self.prefetch is not None:
            self.prefetch.used(node)

    def evicted(self, node: Node, now_ns: int) -> None:
        """The pool gives up a content."""
        if self.prefetch is not None:
            self.prefetch.evicted(node)
        if self._settings.host_write == "write_back" and not self.resetting:
            self.tier.store(path_of(node), Access(now_ns, -1, -1, -1), leaving=True)

    # -- requests and workflows -----------------------------------------------------------------------------

    def offered(self, request: str, keys: Sequence[bytes], hit_blocks: int, now_ns: int) -> int:
        """Return how many blocks beyond the `hit_blocks` in the pool the host gives, if the request is admitted."""
        self._planned.pop(request, None)
        matched = self.tier.matched(keys)
        found = matched - hit_blocks
        if found * self._info.block_tokens < max(self._settings.min_load_tokens, 1):
            return 0
        if self._settings.load_back == "never" or not self._worth(found, hit_blocks):
            return 0
        path = list(keys[:matched])
        self.tier.pin(path, now_ns)
        self._planned[request] = (path, hit_blocks)
        return found

    def admitted(self, request: str, target: Sequence[int], access: Access) -> None:
        """A request has its blocks; `target` are those to be loaded, as offered."""
        path, start = self._planned.pop(request, ([], 0))
        external = len(target)
        if not external:
            return
        if len(path) - start != external:
            self.tier.lacking(target)
            return
        self.tier.load(path, start, target, access, requested=True)
        self._records.moved(_LOAD, None, external, access)
        for depth in range(start + 1, len(path) + 1):
            node = self._pool.nodes.get(path[depth - 1])
            readers = self.readers.of(access.workflow, depth, path[depth - 1], access.now_ns)
            if node is not None:
                self._evictor.call("restore", node, readers)

    def read(self, access: Access, keys: Sequence[bytes]) -> None:
        """A request's prompt, or its prompt and output, are these contents."""
        self.readers.read(access.workflow, access.agent, access.stage, tuple(keys))

    def forecast(self, forecast: Forecast) -> None:
        """Pass on a forecast."""
        self.host_evictor.call("forecast", forecast)
        if self.prefetch is not None:
            self.prefetch.forecast(forecast)

    def workflow_finished(self, workflow: int, now_ns: int) -> None:
        """Pass on the end of a workflow."""
        self.host_evictor.call("workflow_finished", workflow, now_ns)
        self.readers.finish(workflow)
        if self.prefetch is not None:
            self.prefetch.workflow_finished(workflow, now_ns)

    # -- steps ----------------------------------------------------------------------------------------------

    def step(self, shape: BatchShape | None, now_ns: int) -> Copies:
        """A step was scheduled; `shape` where it decodes only. Return its copies."""
        if self.prefetch is not None:
            if self._last_decode_ns >= 0:
                self.prefetch.ran(now_ns - self._last_decode_ns)
            self._last_decode_ns = now_ns if shape is not None else -1
            if shape is not None:
                self.prefetch.plan(shape, now_ns)
        self._planned.clear()
        return self.tier.copies(now_ns)

    def landed(self, report: LoadReport, now_ns: int) -> None:
        """The worker tells what became of a step's loads. A slot that lied makes all of the host's suspect."""
        if self.prefetch is not None:
            self.landing = True
            self.prefetch.landed(report, now_ns)
            self.landing = False
        if report.bad:
            self.corrupt += len(report.bad)
            self._records.decided("host_tier", "corrupt", len(report.bad), now_ns)
            self.tier.clear(now_ns)

    def clear(self, now_ns: int) -> None:
        """The pool was reset: what the host holds is void too."""
        self.tier.clear(now_ns)

    def about(self) -> dict[str, Any]:
        """Return what is known of the run beside its tables."""
        return {
            "corrupt": self.corrupt,
            "held": len(self.tier.tree.nodes),
            "evictor_dropped": self.host_evictor.dropped,
            **(self.prefetch.about() if self.prefetch is not None else {}),
        }

    def _prefetched(self, node: Node, stage: int) -> None:
        self._records.moved(_PREFETCH, node, 1, Access(node.created_ns, -1, stage, -1))

    def _worth(self, blocks: int, have: int) -> bool:
        """Say whether loading is predicted to be cheaper than computing (`sim/kv/tiers.py`)."""
        if self._settings.load_back == "always":
            return True
        profile, size = self._info.profile, self._info.block_tokens
        rate = self._settings.pcie_bytes_per_s or profile.pcie_bytes_per_s
        copy_ps = profile.pcie_copy_overhead_ps
        copy_ps += blocks * size * profile.kv_bytes_per_token * 1_000_000_000_000 // rate
        return copy_ps < profile.linear_ps_at(blocks * size) + profile.chunk_attention_ps(
            blocks * size, have * size
        )


def _run(node: Node, blocks: int) -> list[Node]:
    """Return `blocks` nodes from `node` upwards."""
    out: list[Node] = []
    at: Node | None = node
    while at is not None and len(out) < blocks:
        out.append(at)
        at = at.parent
    return out
