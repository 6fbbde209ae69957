"""How a device is timed: CUDA events around captured graphs on a GPU, the wall clock on a CPU."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

Work = Callable[[], Any]
_WARM = 3
_GRAPHS_KEPT = 12


class Timing(Protocol):
    """Times work on one device. All results are whole nanoseconds, one a repetition."""

    def times_ns(self, work: Work, repetitions: int) -> list[int]:
        """Return the device time of `work`, warm."""
        ...

    def once_ns(self, work: Work, keep: str) -> int:
        """Return the device time of one execution; a graph of it is kept under `keep` ("": run eagerly)."""
        ...

    def copies_ns(self, size_bytes: int, to_device: bool, repetitions: int, load: Work | None) -> list[int]:
        """Return times of one copy between pinned host memory and the device, `load` running beside it."""
        ...

    def graph(self, nodes: int, repetitions: int) -> dict[str, list[int]]:
        """Return capture and replay times, and bytes taken, of a graph of `nodes` small kernels."""
        ...

    def replayable(self, work: Work) -> Work:
        """Return what launches `work` as cheaply as the device can."""
        ...

    def forget(self) -> None:
        """Drop kept graphs and cached memory."""
        ...


class CpuTiming:
    """The wall clock."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def times_ns(self, work: Work, repetitions: int) -> list[int]:
        """Return wall times."""
        work()
        return [self.once_ns(work, "") for _ in range(repetitions)]

    def once_ns(self, work: Work, keep: str) -> int:
        """Return the wall time of one execution."""
        del keep
        began = time.perf_counter_ns()
        work()
        return max(time.perf_counter_ns() - began, 1)

    def copies_ns(self, size_bytes: int, to_device: bool, repetitions: int, load: Work | None) -> list[int]:
        """Return times of a copy in host memory, which stands in for the link in a dry run."""
        del to_device, load
        source = self._torch.zeros(size_bytes, dtype=self._torch.uint8)
        target = self._torch.empty_like(source)
        return self.times_ns(lambda: target.copy_(source), repetitions)

    def graph(self, nodes: int, repetitions: int) -> dict[str, list[int]]:
        """A CPU has no graphs; the backend refuses these points."""
        raise NotImplementedError(f"{nodes} nodes, {repetitions} repetitions: no graphs on a CPU")

    def replayable(self, work: Work) -> Work:
        """Return the work itself."""
        return work

    def forget(self) -> None:
        """Nothing is kept."""


class CudaTiming:
    """CUDA events; work is captured once and replayed, so that launches do not count."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def times_ns(self, work: Work, repetitions: int) -> list[int]:
        """Return device times of a replayed graph; each repetition waits for the one before."""
        graph = self._capture(work)
        for _ in range(_WARM):
            graph.replay()
        times = [self._event_ns(graph.replay) for _ in range(repetitions)]
        del graph
        return times

    def once_ns(self, work: Work, keep: str) -> int:
        """Return the device time of one execution, of a kept graph where `keep` names one."""
        if not keep:
            return self._event_ns(work)
        if keep not in self._kept:
            self._kept[keep] = self._capture(work)
            if len(self._kept) > _GRAPHS_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(keep)
        return self._event_ns(self._kept[keep].replay)

    def copies_ns(self, size_bytes: int, to_device: bool, repetitions: int, load: Work | None) -> list[int]:
        """Return event times on a stream of its own, `load` replaying on the main one."""
        torch = self._torch
        host = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
        device = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
        source, target = (host, device) if to_device else (device, host)
        busy = None if load is None else self._capture(load)
        stream = torch.cuda.Stream()
        times = []
        for _ in range(repetitions + _WARM):
            torch.cuda.synchronize()
            if busy is not None:
                # Long enough that the copy both begins and ends under load.
                for _ in range(2 + (size_bytes >> 26)):
                    busy.replay()
            with torch.cuda.stream(stream):
                times.append(self._event_ns(lambda: target.copy_(source, non_blocking=True)))
        return times[_WARM:]

    def graph(self, nodes: int, repetitions: int) -> dict[str, list[int]]:
        """Return capture, replay (GPU) and memory of a graph of small additions."""
        torch = self._torch
        x = torch.zeros(1024, device="cuda")

        def work() -> Any:
            for _ in range(nodes):
                x.add_(1.0)
            return x

        work()  # loads the kernel: a module cannot be loaded while a stream is captured
        out: dict[str, list[int]] = {"capture": [], "replay": [], "memory": []}
        held = []
        for _ in range(repetitions):
            torch.cuda.synchronize()
            free = torch.cuda.mem_get_info()[0]
            began = time.perf_counter_ns()
            graph = self._capture(work, warm=False)
            torch.cuda.synchronize()
            out["capture"].append(time.perf_counter_ns() - began)
            graph.replay()
            out["replay"].append(self._event_ns(graph.replay))
            out["memory"].append(max(free - torch.cuda.mem_get_info()[0], 0))
            held.append(graph)  # memory of a dropped graph would be counted as free for the next
        return out

    def replayable(self, work: Work) -> Work:
        """Return the replay of a captured graph."""
        replay: Work = self._capture(work).replay
        return replay

    def forget(self) -> None:
        """Drop kept graphs and cached memory."""
        self._kept.clear()
        self._torch.cuda.empty_cache()

    def _capture(self, work: Work, *, warm: bool = True) -> Any:
        torch = self._torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        if warm:
            with torch.cuda.stream(stream):
                for _ in range(_WARM):
                    work()
            torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph

    def _event_ns(self, work: Work) -> int:
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return max(round(float(start.elapsed_time(end)) * 1e6), 1)
