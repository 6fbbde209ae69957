"""Graphs without a GPU: launches are recorded with the semantics of CUDA graphs, and replayed one by one.

What CUDA fixes at capture is fixed here: the kernels, their grids, the addresses of their tensors and the values of
their scalars. What it leaves open stays open: the contents of the tensors. Host code between launches runs at capture
only. A kernel that takes its extent from a host scalar therefore computes the captured extent at every replay.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernels.op import Launch, Tensors
from kernels.recording import taken_by

# Bytes a kernel node takes in an instantiated graph; only so that strategies have something to account for.
NODE_BYTES = 4096


@dataclass(frozen=True)
class Node:
    """One recorded launch: scalars by value, tensors by address."""

    launch: Launch
    tensors: dict[str, torch.Tensor]


class FakeGraph:
    """Recorded launches."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes

    @property
    def bytes(self) -> int:
        """Memory it is said to take."""
        return NODE_BYTES * len(self.nodes)

    def replay(self) -> None:
        """Run the launches as they were captured. Mutates the tensors they write."""
        for node in self.nodes:
            node.launch(node.tensors)


class FakeRecorder:
    """Captures on a CPU. `take` mutates."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []

    def take(self, launch: Launch, tensors: Tensors) -> None:
        """Record a launch; its scalars are copied, as capture copies kernel arguments."""
        frozen = Launch(
            launch.op, launch.kernel, tuple(launch.grid), copy.deepcopy(dict(launch.constants)), launch.warps,
            launch.stages,
        )  # fmt: skip
        self._nodes.append(Node(frozen, dict(tensors)))

    def capture(self, enqueue: Callable[[], None]) -> FakeGraph:
        """Return the graph of what `enqueue` launches; nothing of it runs. Mutates nothing else."""
        self._nodes = []
        with taken_by(self):
            enqueue()
        return FakeGraph(tuple(self._nodes))
