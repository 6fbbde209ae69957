"""Piece D on torch: the wall time of decode steps with the host work of a minimal engine around them.

A step needs its token ids and slots on the device, and gives tokens that are appended to sequences. Sync: the host
waits for a step's tokens before it makes the next. Async: the next step is launched on tokens that are still on the
device, and the host handles the tokens of the step before meanwhile. What a full engine adds is measured through it
(`--backend vllm`); this is the floor that any engine in Python has.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from calibration.plan import Point

if TYPE_CHECKING:
    from calibration.torch_step import TorchBackend

_WARM = 2
_BLOCK_TOKENS = 16


def host_loop_ns(backend: TorchBackend, point: Point, repetitions: int) -> list[int]:
    """Return the wall time from step to step, in ns, one a repetition."""
    torch = backend.torch
    on_gpu = backend.device == "cuda"
    sequences: list[list[int]] = [[0] for _ in range(point.batch)]
    tables = [list(range(point.context_tokens // _BLOCK_TOKENS + 1)) for _ in range(point.batch)]
    ids = torch.zeros(point.batch, dtype=torch.int64, device=backend.device)
    table_host = torch.zeros(point.batch, len(tables[0]), dtype=torch.int32, pin_memory=on_gpu)
    table_device = torch.zeros_like(table_host, device=backend.device)
    tokens_host = torch.zeros(point.batch, dtype=torch.int64, pin_memory=on_gpu)

    def step() -> None:
        ids.copy_(backend.step_on(point, ids))

    launch = backend.timing.replayable(step)

    def prepare() -> None:
        table_host.copy_(torch.tensor(tables, dtype=torch.int32))
        table_device.copy_(table_host, non_blocking=True)

    def collect() -> Any:
        tokens_host.copy_(ids, non_blocking=True)
        if not on_gpu:
            return None
        event = torch.cuda.Event()
        event.record()
        return event

    def handle(event: Any) -> None:
        if event is not None:
            event.synchronize()
        for sequence, token in zip(sequences, tokens_host.tolist(), strict=True):
            sequence.append(token)

    times = []
    waiting = False
    for _ in range(repetitions + _WARM):
        began = time.perf_counter_ns()
        prepare()
        if point.mode == "sync":
            launch()
            handle(collect())
        else:
            # The tokens of the step before are taken before this step overwrites them.
            taken = collect() if waiting else None
            launch()
            if waiting:
                handle(taken)
            waiting = True
        times.append(time.perf_counter_ns() - began)
    if on_gpu:
        torch.cuda.synchronize()
    return times[_WARM:]
