"""The KV connector that loads an evictor into vLLM, and with `host_blocks` a host tier behind its pool.

vLLM imports this module when it starts with
`kv_transfer_config={"kv_connector": "EvictionConnector", "kv_connector_module_path": "live.vllm.evictor",
"kv_role": "kv_both", "kv_connector_extra_config": {"evictor": "lookahead", ...}}`; `EvictionSettings.transfer_config`
writes that. The scheduler's side holds the policies, in the process of the engine core; the worker's side copies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from live.vllm import compat
from live.vllm.copies import Copies, LoadReport
from live.vllm.host import EvictionHost
from live.vllm.memory import HostMemory
from live.vllm.poolhands import Codec
from live.vllm.settings import parse_settings
from policies.views import BatchShape, HostInfo
from traces.errors import InputError

if TYPE_CHECKING:
    _Base: Any = object
    _Metadata: Any = object
    _WorkerMetadata: Any = object
    _AllGroups: Any = object
else:
    try:
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1 as _Base
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata as _Metadata
        from vllm.distributed.kv_transfer.kv_connector.v1.base import (
            KVConnectorWorkerMetadata as _WorkerMetadata,
        )
        from vllm.distributed.kv_transfer.kv_connector.v1.base import SupportsHMA as _AllGroups
    except ImportError:  # no vLLM here, or one that `compat` refuses when a connector is made

        class _Base:
            """Stands in where there is no vLLM."""

        class _AllGroups:
            """Stands in where there is no vLLM."""

        _Metadata = _WorkerMetadata = object


@dataclass
class StepCopies(_Metadata):  # type: ignore[misc]
    """What the worker's side is told with a step."""

    copies: Copies = field(default_factory=Copies)


@dataclass
class StepReport(_WorkerMetadata):  # type: ignore[misc]
    """What the worker's side answers after one."""

    report: LoadReport = field(default_factory=LoadReport)

    def aggregate(self, other: Any) -> StepReport:
        """Return the answer of two workers: what either could not load is bad."""
        mine = self.report
        return StepReport(LoadReport(mine.loads, sorted({*mine.bad, *other.report.bad})))


class EvictionConnector(_Base, _AllGroups):  # type: ignore[misc]
    """Serves the pool of one engine core; see `EvictionHost` for what it tells the policy."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        compat.require()
        super().__init__(vllm_config, role, kv_cache_config)
        self._config = vllm_config
        self._groups = kv_cache_config.kv_cache_groups if kv_cache_config is not None else []
        self._host: EvictionHost | None = None
        self._requests: dict[str, Any] = {}
        self._memory: HostMemory | None = None
        self._settings = parse_settings(vllm_config.kv_transfer_config.kv_connector_extra_config)
        if role.name == "SCHEDULER":
            self._host = EvictionHost(self._settings)

    @property
    def requires_kv_delivery(self) -> bool:
        """No KV is handed on, so nothing is lost with a preempted request."""
        return False

    # -- the scheduler's side -------------------------------------------------------------------------------

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        """Put the policy in charge of the pool. Raises InputError for a cache it cannot serve."""
        host = self._host
        if host is None:
            return
        if len(self._groups) > 1:
            raise InputError(
                f"this model has {len(self._groups)} groups of KV layers; the eviction host serves one"
            )
        config = self._config
        block_tokens = config.cache_config.block_size
        blocks = gpu_block_pool.num_gpu_blocks - 1  # block 0 is never used
        kv_bytes = self._groups[0].kv_cache_spec.page_size_bytes * len(self._groups[0].layer_names)
        info = HostInfo(
            profile=host.settings.load_profile(
                config.model_config.max_model_len, max(1, kv_bytes // block_tokens)
            ),
            block_tokens=block_tokens,
            capacity_tokens=blocks * block_tokens,
            host_capacity_tokens=host.settings.host_blocks * block_tokens,
            max_num_seqs=config.scheduler_config.max_num_seqs,
            max_num_batched_tokens=config.scheduler_config.max_num_batched_tokens,
            agents=host.settings.agents,
            seed=host.settings.seed,
        )
        host.bind(gpu_block_pool, info, _codec())

    def on_new_request(self, request: Any) -> None:
        """Note who sends it; forecast."""
        if self._host is not None:
            self._requests[request.request_id] = request
            self._host.arrived(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Return what the host tier has beyond the pool. Called right before the pool's `touch` of the hits."""
        if self._host is None:
            return 0, False
        return self._host.offered(request, num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The request was admitted."""
        if self._host is not None:
            self._host.admitted(request, [b.block_id for b in blocks.blocks[0]], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """A step begins; the worker's side is told its copies."""
        if self._host is None:
            return StepCopies()
        scheduled = scheduler_output.num_scheduled_tokens
        if scheduled:
            drafts = {r: len(d) for r, d in scheduler_output.scheduled_spec_decode_tokens.items()}
            preempted = scheduler_output.preempted_req_ids or ()
            self._host.opened(scheduled, drafts, preempted, self._requests)
        return StepCopies(
            self._host.step(scheduled, self._output_tokens, self._decode_shape(scheduler_output))
        )

    def update_connector_output(self, connector_output: Any) -> None:
        """A step ended: what became of its loads."""
        if self._host is None:
            return
        answer = connector_output.kv_connector_worker_meta
        self._host.closed(self._requests)
        if isinstance(answer, StepReport):
            self._host.landed(answer.report)

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """The blocks may be freed at once."""
        if self._host is not None:
            self._host.ended(request)
            self._requests.pop(request.request_id, None)
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """The same, where vLLM asks for all groups of KV layers at once."""
        return self.request_finished(request, block_ids)

    def shutdown(self) -> None:
        """Write the run's log."""
        if self._host is not None:
            self._host.shutdown()

    def _output_tokens(self, request: str) -> int:
        known = self._requests.get(request)
        return known.num_output_tokens if known is not None else 0

    def _decode_shape(self, scheduler_output: Any) -> BatchShape | None:
        """Return the shape of a step that decodes only, None for any other."""
        scheduled: dict[str, int] = scheduler_output.num_scheduled_tokens
        drafts: dict[str, list[int]] = scheduler_output.scheduled_spec_decode_tokens
        if not scheduled or scheduler_output.scheduled_new_reqs:
            return None
        context = 0
        for name, tokens in scheduled.items():
            request = self._requests.get(name)
            if request is None or tokens != 1 + len(drafts.get(name, ())):
                return None
            if request.num_computed_tokens < request.num_prompt_tokens:
                return None
            context += request.num_computed_tokens
        widths = set(scheduled.values())
        width = widths.pop() if len(widths) == 1 else 0
        return BatchShape(len(scheduled), width, sum(scheduled.values()), 0, context)

    # -- the worker's side ----------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Make the host's memory behind these caches."""
        if self._settings.host_blocks:
            from vllm.v1.kv_cache_interface import group_kernel_blocks

            blocks = self._kv_cache_config.num_blocks
            layers = {name: group_kernel_blocks(cache, blocks) for name, cache in kv_caches.items()}
            self._memory = HostMemory(layers, self._settings.host_blocks)

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        """Copy to the host what this step may overwrite. Called before anything of the step is written."""
        if self._memory is not None:
            self._memory.store(kv_connector_metadata.copies)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Copy from the host: before the step computes where a request waits for it."""
        if self._memory is not None:
            self._memory.load(self._get_connector_metadata().copies)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Return blocks whose content could not be trusted; the engine computes them again."""
        return self._memory.take_failed() if self._memory is not None else set()

    def build_connector_worker_meta(self) -> Any:
        """Return what became of the step's loads."""
        report = self._memory.take_report() if self._memory is not None else None
        return None if report is None else StepReport(report)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to wait for."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing to save."""

    def wait_for_save(self) -> None:
        """Nothing to wait for."""


def _codec() -> Codec:
    """Return how vLLM's pool names contents, of the one group of KV layers."""
    from vllm.v1.core.kv_cache_utils import get_block_hash, make_block_hash_with_group_id

    return Codec(lambda content: bytes(make_block_hash_with_group_id(content, 0)), get_block_hash)
