"""A workload of independent requests, straight from columns: no per-row work."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError
from traces.prefix import PrefixTree
from traces.schema import Workload


def flat_workload(
    name: str,
    arrival_ns: NDArray[np.int64] | None,
    prompt_tokens: NDArray[np.int32],
    output_tokens: NDArray[np.int32],
    provenance: dict[str, Any],
) -> Workload:
    """Return a checked workload of one workflow a request; columns are [requests], no prompt shares any."""
    n = len(prompt_tokens)
    zero = np.zeros(n, dtype=np.int32)
    minus = np.full(n, -1, dtype=np.int32)
    workload = Workload(
        name=name,
        workflow_names=tuple(map(str, range(n))),
        workflow_arrival_ns=None if arrival_ns is None else np.ascontiguousarray(arrival_ns, dtype=np.int64),
        agents=(),
        stage_workflow=np.arange(n, dtype=np.int32),
        stage_kind=np.zeros(n, dtype=np.int8),
        stage_agent=minus,
        stage_duration_ns=np.zeros(n, dtype=np.int64),
        prompt_tokens=np.ascontiguousarray(prompt_tokens, dtype=np.int32),
        output_tokens=np.ascontiguousarray(output_tokens, dtype=np.int32),
        parent_ptr=np.zeros(n + 1, dtype=np.int64),
        parent_idx=np.zeros(0, dtype=np.int32),
        prefix=PrefixTree.empty(),
        prompt_segment=minus,
        prompt_shared_tokens=zero,
        sequence_segment=minus,
        sequence_shared_tokens=zero,
        provenance=provenance,
    )
    errors = workload.errors()
    if errors:
        raise InputError(f"{name}: {errors[0]}")
    return workload
