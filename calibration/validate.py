"""A profile against measured steps: how wrong, for which kind of step, on which side, how often inside the bands.

Nothing is fitted here. Rows that a profile was fitted on say how well it fits, not how well it predicts: the report
cannot know which they were, so it repeats what the profile says of its sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.conformal import interval_ps
from calibration.rows import StepRows
from calibration.stats import absolute_error
from policies.costs import Profile

# Upper ends of the classes of batch by which errors are told apart: how full the step was.
BATCH_CLASSES = (1, 8, 32, 128, 1 << 30)


@dataclass(frozen=True)
class StepErrors:
    """Predicted steps beside measured ones, [N] each.

    predicted_ps   int64: by the row's scope, with engine time and HTTP where the measured time holds them
    relative       float64: predicted / measured - 1
    inside         bool: measured time within the profile's stated interval; False where it states none
    banded         bool: whether it states one
    """

    predicted_ps: NDArray[np.int64]
    relative: NDArray[np.float64]
    inside: NDArray[np.bool_]
    banded: NDArray[np.bool_]


def step_ps(profile: Profile, rows: StepRows, i: int) -> int:
    """Return the price of row `i` in ps, of what its scope holds.

    Prefill attention is the larger of its flops and one read of its prefix, as the simulator prices it.
    """
    kind, scope = str(rows.kind[i]), str(rows.scope[i])
    tokens, seqs = int(rows.tokens[i]), int(rows.seqs[i])
    context = int(rows.context[i])
    if kind == "verify":
        context = int(rows.batch[i]) * profile.verify_read_tokens(
            int(rows.new_tokens[i]), int(rows.context_tokens[i])
        )
    ps = profile.linear_ps_at(tokens) + profile.kv_read_ps_per_token * context + profile.per_seq_ps * seqs
    if kind in ("prefill", "mixed"):
        chunks = int(rows.batch[i]) if kind == "prefill" else 1
        ps += chunks * profile.chunk_attention_ps(int(rows.new_tokens[i]), int(rows.prefix_tokens[i]))
    if scope != "kernel":
        ps += profile.overhead_ps + profile.overhead_per_seq_ps * seqs
    if scope == "client":
        ps += profile.http_overhead_ps
    return ps


def step_errors(profile: Profile, rows: StepRows) -> StepErrors:
    """Return the errors of every row; a profile without bands is given ± its stated p95 error as one."""
    predicted = np.array([step_ps(profile, rows, i) for i in range(len(rows))], dtype=np.int64)
    measured = rows.time_ns * 1000
    inside, banded = np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
    for i in range(len(rows)):
        reach = int(max(rows.context_tokens[i], rows.prefix_tokens[i]))
        found = interval_ps(
            profile.bands, str(rows.kind[i]), int(predicted[i]), int(rows.tokens[i]), reach
        ) or _stated(profile, int(predicted[i]))
        if found is not None:
            banded[i] = True
            inside[i] = found[0] <= measured[i] <= found[1]
    return StepErrors(predicted, predicted / measured - 1, inside, banded)


def rows_report(profile: Profile, rows: StepRows) -> dict[str, Any]:
    """Return errors in percent by kind and scope of step and by batch, and the coverage of stated intervals."""
    errors = step_errors(profile, rows)
    kinds = np.char.add(np.char.add(rows.kind, " "), rows.scope)
    classes = np.searchsorted(BATCH_CLASSES, rows.batch)
    names = ["batch 1", *(f"batch to {n}" for n in BATCH_CLASSES[1:-1]), f"batch over {BATCH_CLASSES[-2]}"]
    return {
        "profile": profile.name,
        "rows": len(rows),
        "all": _part(errors, np.ones(len(rows), dtype=bool)),
        "by_kind": {str(k): _part(errors, kinds == k) for k in sorted(set(kinds.tolist()))},
        "by_batch": {
            names[c]: _part(errors, classes == c) for c in range(len(BATCH_CLASSES)) if np.any(classes == c)
        },
        "interval": "bands of the profile" if profile.bands else "± its stated p95 error",
        "stated_error": {
            k: profile.error[k] for k in ("mape_percent", "p95_percent", "how") if k in profile.error
        },
    }


def _part(errors: StepErrors, mask: NDArray[np.bool_]) -> dict[str, Any]:
    out: dict[str, Any] = dict(absolute_error(errors.relative[mask]))
    banded = mask & errors.banded
    if banded.any():
        out["coverage_percent"] = round(100 * float(errors.inside[banded].mean()), 1)
    return out


def _stated(profile: Profile, predicted_ps: int) -> tuple[int, int] | None:
    p95 = profile.error.get("p95_percent")
    if p95 is None:
        return None
    # The error is relative to what was measured: predicted / measured within 1 ± p95.
    low = predicted_ps / (1 + p95 / 100)
    high = predicted_ps / (1 - p95 / 100) if p95 < 100 else float(1 << 62)
    return int(low), int(high)
