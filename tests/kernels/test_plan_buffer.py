"""The plan, its layout, and the ring it travels through."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import models
from kernels.plan import SLOTS, UPDATE_BYTES, Plan, PlanBuffer, PlanLayout
from kernels.shapes import QWEN25_3B, Bounds, DecodeShape
from kernels.staging import HostCopies, StagingRing
from traces.errors import InputError


class LateCopies(HostCopies):
    """A stream that lags as far as it may: a copy reads its source only when someone waits for what is behind it.

    seen   what the target held after each copy
    """

    def __init__(self):
        self.queue, self.done, self.seen = [], 0, []

    def enqueue(self, source, target):
        self.queue.append((source, target))

    def event(self):
        stream = self

        class Point:
            at = 0

            def record(self):
                self.at = len(stream.queue)

            def synchronize(self):
                stream.drain(self.at)

        return Point()

    def drain(self, until):
        for source, target in self.queue[self.done : until]:
            target.copy_(source)
            self.seen.append(target.tolist())
        self.done = max(self.done, until)


@given(st.integers(1, 4), st.lists(st.integers(0, 99), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_no_staged_update_is_overwritten_while_its_copy_is_in_flight(depth, values):
    copies = LateCopies()
    ring = StagingRing(copies, 1, depth)
    target = copies.device_words(1)
    for value in values:
        ring.write(np.array([value], dtype=np.int32), target)
    assert len(copies.queue) - copies.done <= depth
    copies.drain(len(copies.queue))
    assert copies.seen == [[v] for v in values]


@given(st.permutations(SLOTS), st.integers(0, 16), st.integers(0, 8), st.integers(0, 64))
@settings(max_examples=40, deadline=None)
def test_update_is_28_bytes_in_the_layouts_order(order, batch, draft, base):
    layout = PlanLayout(tuple(order))
    buffer = PlanBuffer(Bounds(16, 8, 64), layout, HostCopies())
    buffer.tensor[7] = -5
    plan = Plan.rectangular(QWEN25_3B, batch, draft, base)
    assert buffer.update(plan) == UPDATE_BYTES == 28
    values = {"M": batch * draft, "B": batch, "d": draft, "H": 2048, "I": 11008, "N_h": 16, "s": base}
    for name, value in values.items():
        assert buffer.tensor[layout.slot(name)] == value
    assert buffer.tensor.numel() == 8
    assert buffer.tensor[7] == -5


def test_host_that_runs_ahead_waits_only_for_the_slot_it_fills():
    copies = LateCopies()
    ring = StagingRing(copies, 1, 3)
    target = copies.device_words(1)
    for value in range(5):
        ring.write(np.array([value], dtype=np.int32), target)
    assert copies.seen == [[0], [1]]


def test_ragged_plan_brings_row_offsets_in_the_same_copy():
    buffer = PlanBuffer(Bounds(4, 5, 64), PlanLayout(), HostCopies(), ragged=True)
    address = buffer.tensor.data_ptr()
    assert buffer.update(Plan.ragged(QWEN25_3B, (4, 1, 2))) == 32 + 4 * 4
    assert buffer.tensor.tolist()[:3] == [7, 3, 4]
    assert buffer.tensor.tolist()[8:12] == [0, 4, 5, 7]
    assert buffer.tensor.data_ptr() == address


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        (Plan.rectangular(QWEN25_3B, 5, 2), "batch 5"),
        (Plan.rectangular(QWEN25_3B, 2, 6), "draft 6"),
        (Plan(21, 4, 5, 1, 1, 1), "rows 21"),
        (Plan.ragged(QWEN25_3B, (1, 2)), "ragged plan"),
        (Plan(3, 2, 3, 1, 1, 1, drafts=(3, 0)), "drafts"),
    ],
)
def test_plan_beyond_the_captured_bounds_is_refused_on_the_host(plan, word):
    buffer = PlanBuffer(Bounds(4, 5, 64), PlanLayout(), HostCopies())
    with pytest.raises(InputError, match=word):
        buffer.update(plan)
    assert not buffer.tensor.any()


def test_layout_holds_each_field_once():
    with pytest.raises(InputError, match="allowed"):
        PlanLayout(("M", "M", "d", "H", "I", "N_h", "s"))
    with pytest.raises(InputError, match="did you mean"):
        PlanLayout().slot("N_hh")


def test_evaluated_shape_is_the_catalogues():
    shape = models.model("Qwen2.5-3B")
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab"):
        assert getattr(QWEN25_3B, name) == getattr(shape, name), name


@pytest.mark.parametrize(
    "change", [{"heads": 3}, {"head_dim": 24}, {"layers": 0}, {"vocab": 1 << 30}, {"head_dim": 8}]
)
def test_shape_that_kernels_cannot_serve_is_refused(change):
    fields = {
        "layers": 2,
        "hidden": 40,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 16,
        "intermediate": 56,
        "vocab": 90,
    }
    with pytest.raises(InputError, match="shape odd"):
        DecodeShape("odd", **(fields | change))


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_bounds_cover_what_is_within_them(batch, draft, extra):
    bounds = Bounds(batch, draft, draft + extra)
    assert bounds.rows == batch * draft
    assert bounds.covers(bounds)
    assert not bounds.covers(Bounds(batch + 1, draft, draft + extra))
    with pytest.raises(InputError, match="rows"):
        Bounds(batch, draft, draft, rows=batch * draft + 1)
    assert torch.equal(
        torch.tensor(Plan.rectangular(QWEN25_3B, batch, draft).rows), torch.tensor(bounds.rows)
    )
