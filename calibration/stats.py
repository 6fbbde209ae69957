"""Error figures as they are reported: percent, rounded to one decimal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def absolute_error(relative: NDArray[np.float64]) -> dict[str, float | int]:
    """Return MAPE, p95 of absolute error, signed bias (percent) and count of relative errors, float64[N].

    >>> absolute_error(np.array([0.1, -0.1]))
    {'mape_percent': 10.0, 'p95_percent': 10.0, 'bias_percent': 0.0, 'rows': 2}
    """
    percent = 100 * np.asarray(relative, dtype=np.float64)
    return {
        "mape_percent": round(float(np.abs(percent).mean()), 1),
        "p95_percent": round(float(np.quantile(np.abs(percent), 0.95)), 1),
        "bias_percent": round(float(percent.mean()), 1),
        "rows": int(percent.size),
    }
