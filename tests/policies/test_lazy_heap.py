"""The lazy heap against a sorted list, and its bound on garbage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies._lazy_heap import LazyHeap


@given(st.lists(st.tuples(st.sampled_from(["set", "discard", "peek"]), st.integers(0, 9), st.integers(0, 5))))
def test_peek_is_the_minimum_of_what_is_there(operations: list[tuple[str, int, int]]) -> None:
    heap: LazyHeap[int] = LazyHeap()
    there: dict[int, int] = {}
    for name, id, priority in operations:
        if name == "set":
            heap.set(id, priority, id)
            there[id] = priority
        elif name == "discard":
            heap.discard(id)
            there.pop(id, None)
        expected = min(there, key=lambda i: (there[i], i), default=None)
        assert heap.peek() == expected
        assert len(heap) == len(there)
        assert (id in heap) == (id in there)
        assert heap.priority(id) == there.get(id)


def test_garbage_never_outnumbers_the_living_by_more_than_the_slack() -> None:
    heap: LazyHeap[int] = LazyHeap()
    for i in range(10_000):
        heap.set(i % 10, i, i % 10)
        assert heap.garbage <= len(heap) + 65
    assert heap.peek() == 0
