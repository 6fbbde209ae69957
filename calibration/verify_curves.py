"""The public verification curves: multiplies and LM head of a step by its tokens, three models, three GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration import constants as data
from calibration.fit_terms import Floats, Terms, terms
from calibration.gpus import GPUS, Gpu
from calibration.models import Shard, model
from calibration.rows import from_frame

CURVES = data.DATA / "verify_linear.csv"
# The curves leave attention out, steps do not: generation attention of one sequence with one token, head size 128,
# microseconds a layer in the same tables.
_ATTENTION_FLOOR_US = {"A100": 10.7, "H100": 11.2, "H200": 11.2}


@dataclass(frozen=True)
class Curve:
    """One measured curve: `tokens` int64[N] ascending from 1, `seconds` float64[N] with the attention floor added."""

    gpu: Gpu
    model: str
    precision: str
    tokens: NDArray[np.int64]
    seconds: Floats

    def times_one(self) -> Floats:
        """Return t(n)/t(1), float64[N]."""
        return np.asarray(self.seconds / self.seconds[0], dtype=np.float64)

    def terms(self, shard: Shard, precision: str) -> Terms:
        """Return the curve's points as steps of one sequence without context."""
        frame = pd.DataFrame({"new_tokens": self.tokens, "time_ns": np.rint(self.seconds * 1e9)})
        frame = frame.assign(kind="verify", batch=1, context_tokens=0, prefix_tokens=0)
        return terms(from_frame(frame, CURVES), shard, self.gpu, precision)


def verify_curves() -> list[Curve]:
    """Return every curve, ordered by GPU, model and precision."""
    groups = pd.read_csv(CURVES).groupby(["gpu", "model", "precision"], sort=True)
    return [_curve(str(g), str(m), str(p), table) for (g, m, p), table in groups]


def verify_curve(tables: str, name: str, precision: str) -> Curve | None:
    """Return the curve of one model on the GPU with these tables ("h200_sxm"), or None where there is none."""
    wanted = (tables, name, precision)
    found = [c for c in verify_curves() if (c.gpu.tables, c.model, c.precision) == wanted]
    return found[0] if found else None


def _curve(gpu_key: str, name: str, precision: str, table: pd.DataFrame) -> Curve:
    table = table.sort_values("tokens")
    floor_us = _ATTENTION_FLOOR_US[gpu_key] * model(name).layers
    seconds = (table.time_us.to_numpy(dtype=np.float64) + floor_us) * 1e-6
    return Curve(GPUS[gpu_key], name, precision, table.tokens.to_numpy(dtype=np.int64), seconds)
