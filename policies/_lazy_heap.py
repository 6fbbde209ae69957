"""A priority queue whose entries can be changed and dropped in O(log n), for policies that rank."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_SLACK = 64


class LazyHeap(Generic[T]):
    """Items by id, each with a priority (any totally ordered value); `peek` gives the lowest, ties by id.

    An update leaves its old entry in the heap as garbage that `peek` skips; when garbage outnumbers the
    living the heap is rebuilt, so that memory stays O(live) and every operation O(log live), amortised.
    """

    __slots__ = ("_heap", "_live")

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int]] = []
        self._live: dict[int, tuple[Any, T]] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, id: int) -> bool:
        return id in self._live

    @property
    def garbage(self) -> int:
        """Entries in memory that no longer count."""
        return len(self._heap) - len(self._live)

    def priority(self, id: int) -> Any:
        """Return the item's priority, None when it is not there. Does not mutate."""
        entry = self._live.get(id)
        return None if entry is None else entry[0]

    def set(self, id: int, priority: Any, item: T) -> None:
        """Add the item, or change its priority. Mutates the heap."""
        heap, live = self._heap, self._live
        live[id] = (priority, item)
        if len(heap) > 2 * len(live) + _SLACK:
            heap[:] = [(entry[0], i) for i, entry in live.items()]
            heapify(heap)
        else:
            heappush(heap, (priority, id))

    def discard(self, id: int) -> None:
        """Drop the item, if it is there. Mutates the heap."""
        self._live.pop(id, None)

    def peek(self) -> T | None:
        """Return the item of lowest priority, None when there is none. Drops garbage on the way."""
        heap, live = self._heap, self._live
        while heap:
            priority, id = heap[0]
            entry = live.get(id)
            if entry is not None and entry[0] == priority:
                return entry[1]
            heappop(heap)
        return None
