"""A measured run, request by request: what was sent, when, and what its client saw."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.config import LoadConfig
from traces.errors import InputError
from traces.flat import flat_workload
from traces.schema import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class MeasuredRun:
    """N requests in order of arrival.

    arrival_ns      int64[N] from the first request on, or None where the client did not record it
    prompt_tokens, output_tokens   int64[N], at least 1
    ttft_ms, e2e_ms float64[N]; nan where not recorded
    max_concurrency the client's bound on requests in flight, None without one
    rate_per_s      the client's request rate, None where it sent as fast as it could
    dropped         requests left out, by reason
    """

    name: str
    prompt_tokens: Ints
    output_tokens: Ints
    ttft_ms: Floats
    e2e_ms: Floats
    arrival_ns: Ints | None = None
    max_concurrency: int | None = None
    rate_per_s: float | None = None
    dropped: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def tpot_ms(self) -> Floats:
        """Time per output token after the first, float64[N]; nan for one token."""
        rest = np.where(self.output_tokens > 1, self.output_tokens - 1, 1)
        return np.where(self.output_tokens > 1, (self.e2e_ms - self.ttft_ms) / rest, np.nan)

    def throughput_tok_s(self) -> float:
        """Generated tokens a second from the first request to the last answer; nan without arrivals."""
        if self.arrival_ns is None:
            return float("nan")
        ends = self.arrival_ns / 1e6 + self.e2e_ms
        return float(self.output_tokens.sum() / (np.nanmax(ends) - self.arrival_ns.min() / 1e6) * 1e3)

    def where(self, mask: NDArray[np.bool_]) -> MeasuredRun:
        """Return the requests that bool[N] keeps."""
        kept: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("prompt_tokens", "output_tokens", "ttft_ms", "e2e_ms", "arrival_ns"):
            if kept[name] is not None:
                kept[name] = kept[name][mask]
        return MeasuredRun(**kept)

    def replay(self) -> tuple[Workload, LoadConfig]:
        """Return the same requests as a workload, stage i for request i, and how they arrive.

        Recorded arrivals are kept. Without them the client's rate makes Poisson arrivals, its bound a closed
        loop; raises InputError where the run records none of the three.
        """
        workload = flat_workload(
            self.name,
            self.arrival_ns,
            self.prompt_tokens.astype(np.int32),
            self.output_tokens.astype(np.int32),
            {"source": "measured run", "requests": len(self)},
        )
        if self.arrival_ns is not None:
            return workload, LoadConfig(loop="open")
        if self.max_concurrency is not None:
            return workload, LoadConfig(loop="closed", concurrency=self.max_concurrency)
        if self.rate_per_s is not None:
            return workload, LoadConfig(loop="open", rate_per_s=self.rate_per_s)
        raise InputError(
            f"{self.name}: neither arrival times, nor a request rate, nor max_concurrency is recorded: "
            "cannot be replayed"
        )


def build_run(name: str, columns: dict[str, Floats], **client: Any) -> MeasuredRun:
    """Return a run from float columns (arrival_s optional), sorted by arrival; drops what cannot be compared.

    Failed requests (no output, or no latency at all) are counted in `dropped`. Raises InputError where
    nothing is left.
    """
    prompt, output = columns["prompt_tokens"], columns["output_tokens"]
    lost = ~(prompt >= 1) | ~(output >= 1) | ~np.isfinite(columns["e2e_ms"]) | ~(columns["e2e_ms"] > 0)
    keep = ~lost
    if not keep.any():
        raise InputError(f"{name}: no request with tokens and a latency")
    arrival = columns.get("arrival_s")
    arrival_ns = None
    order = np.flatnonzero(keep)
    if arrival is not None and np.isfinite(arrival[keep]).all():
        order = order[np.argsort(arrival[order], kind="stable")]
        first = arrival[order[0]]
        arrival_ns = np.rint((arrival[order] - first) * 1e9).astype(np.int64)
    return MeasuredRun(
        name=name,
        prompt_tokens=prompt[order].astype(np.int64),
        output_tokens=output[order].astype(np.int64),
        ttft_ms=columns["ttft_ms"][order],
        e2e_ms=columns["e2e_ms"][order],
        arrival_ns=arrival_ns,
        dropped={"failed or without tokens": int(lost.sum())} if lost.any() else {},
        **client,
    )
