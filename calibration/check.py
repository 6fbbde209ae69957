"""How wrong the form is: every profile's integer prices against composed kernel steps.

Rows: CSV with columns system, model, quant, tp, kind (decode, prefill, mixed), b, n, aux, t_ms. Decode: b
sequences at context n. Prefill: one chunk of n tokens after a prefix of aux. Mixed: a chunk of n and b
decodes at context aux.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibration.gpus import GPUS
from calibration.overhead import kernel_profile
from calibration.stats import absolute_error
from policies.costs import Profile
from traces.errors import InputError, at

COLUMNS = ("system", "model", "quant", "tp", "kind", "b", "n", "aux", "t_ms")


def step_ms(profile: Profile, kind: str, b: int, n: int, aux: int) -> float:
    """Return the price of one row's step in ms."""
    if kind == "decode":
        ps = profile.step_ps(b, b, b * n)
    elif kind == "prefill":
        # As in the simulator: what a chunk reads of its own prefix is in its pairs, not in the context.
        ps = profile.step_ps(n, 1, 0, n * (2 * aux + n) // 2)
    elif kind == "mixed":
        ps = profile.step_ps(b + n, b + 1, b * aux, n * n // 2)
    else:
        raise InputError(f"unknown kind of step {kind!r}: allowed: decode, mixed, prefill")
    return ps / 1e9


def report(path: Path) -> dict[str, Any]:
    """Return errors of the integer profiles in percent, by constants key, TP size and kind."""
    try:
        rows = pd.read_csv(path)
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from None
    missing = [c for c in COLUMNS if c not in rows.columns]
    if missing:
        raise InputError(f"{at(path, 1, missing[0])}: missing; a table of steps has {', '.join(COLUMNS)}")
    keys = {g.tables: g.key for g in GPUS.values() if g.tables}
    rows = rows[rows.system.isin(keys) & rows.quant.isin(("bf16", "fp8"))]
    errors: dict[str, Any] = {}
    relative: dict[tuple[str, int, str], list[float]] = {}
    for (system, name, quant, tp), group in rows.groupby(["system", "model", "quant", "tp"], sort=True):
        profile = kernel_profile(keys[system], name, quant, int(tp))
        for r in group.itertuples():
            got = step_ms(profile, str(r.kind), int(r.b), int(r.n), int(r.aux))
            relative.setdefault((f"{system}:{quant}", int(tp), str(r.kind)), []).append(
                got / float(r.t_ms) - 1
            )
    for (key, size, kind), values in sorted(relative.items()):
        errors.setdefault(key, {}).setdefault(str(size), {})[kind] = absolute_error(np.array(values))
    return {
        "provenance": {
            "rows": "kernel sums from the tables of aiconfigurator-core 0.12.0 (Apache-2.0), no engine time",
            "models": sorted(rows.model.unique()),
            "rows_sha256": sha256(path.read_bytes()).hexdigest(),
            "command": "python -m calibration check --rows FILE",
        },
        "errors": errors,
    }
