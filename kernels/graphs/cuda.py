"""Graphs on a GPU: torch's, one capture stream and one memory pool for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class CudaGraph:
    """A captured and instantiated graph.

    bytes   device memory that was taken by its capture
    """

    def __init__(self, graph: Any, taken_bytes: int) -> None:
        self._graph = graph
        self.bytes = taken_bytes

    def replay(self) -> None:
        """Launch it on the current stream."""
        self._graph.replay()


class CudaRecorder:
    """Captures on the current device.

    What is captured runs once before, outside capture: compiling a kernel and loading its module allocate and
    synchronize, which a capture must not. Nothing else may run on the capture stream.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        make: Callable[[], Any] = torch.cuda.Stream
        self._stream = make()

    def capture(self, enqueue: Callable[[], None]) -> CudaGraph:
        """Return the graph of what `enqueue` launches. Runs it once first; mutates what it writes."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            enqueue()
        torch.cuda.synchronize()
        before, _ = torch.cuda.mem_get_info()
        graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            enqueue()
        torch.cuda.synchronize()
        after, _ = torch.cuda.mem_get_info()
        return CudaGraph(graph, max(before - after, 0))
