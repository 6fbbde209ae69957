"""The KV connector that loads an evictor into vLLM; it moves no KV.

vLLM imports this module when it starts with
`kv_transfer_config={"kv_connector": "EvictionConnector", "kv_connector_module_path": "live.vllm.evictor",
"kv_role": "kv_both", "kv_connector_extra_config": {"evictor": "lookahead", ...}}`; `EvictionSettings.transfer_config`
writes that. The scheduler's side holds the policy, in the process of the engine core; the worker's side does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from live.vllm import compat
from live.vllm.host import EvictionHost
from live.vllm.settings import parse_settings
from policies.views import HostInfo
from traces.errors import InputError

if TYPE_CHECKING:
    _Base: Any = object
    _Metadata: Any = object
    _AllGroups: Any = object
else:
    try:
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1 as _Base
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata as _Metadata
        from vllm.distributed.kv_transfer.kv_connector.v1.base import SupportsHMA as _AllGroups
    except ImportError:  # no vLLM here, or one that `compat` refuses when a connector is made

        class _Base:
            """Stands in where there is no vLLM."""

        class _AllGroups:
            """Stands in where there is no vLLM."""

        _Metadata = object


class EvictionConnector(_Base, _AllGroups):  # type: ignore[misc]
    """Serves the pool of one engine core; see `EvictionHost` for what it tells the policy."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        compat.require()
        super().__init__(vllm_config, role, kv_cache_config)
        self._config = vllm_config
        self._groups = kv_cache_config.kv_cache_groups if kv_cache_config is not None else []
        self._host: EvictionHost | None = None
        self._requests: dict[str, Any] = {}
        if role.name == "SCHEDULER":
            given = vllm_config.kv_transfer_config.kv_connector_extra_config
            self._host = EvictionHost(parse_settings(given))

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
            max_num_seqs=config.scheduler_config.max_num_seqs,
            max_num_batched_tokens=config.scheduler_config.max_num_batched_tokens,
            agents=host.settings.agents,
            seed=host.settings.seed,
        )
        host.bind(gpu_block_pool, info)

    def on_new_request(self, request: Any) -> None:
        """Note who sends it; forecast."""
        if self._host is not None:
            self._requests[request.request_id] = request
            self._host.arrived(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Nothing is cached elsewhere. Called right before the pool's `touch` of this request's hits."""
        if self._host is not None:
            self._host.offered(request, num_computed_tokens)
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The request was admitted."""
        if self._host is not None:
            self._host.admitted(request)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """A step begins; the worker's side is told nothing."""
        if self._host is not None:
            self._host.step(scheduler_output.num_scheduled_tokens, self._output_tokens)
        return _Metadata()

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

    # -- the worker's side: there is nothing to move --------------------------------------------------------

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Nothing to load."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to wait for."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing to save."""

    def wait_for_save(self) -> None:
        """Nothing to wait for."""
