"""Every kernel, interpreted, against its float32 reference."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kernel_cases import BOUNDS, TINY, cases, config

from kernels.ops.attention import attention_tiles
from kernels.plan import Plan
from kernels.program import ops
from kernels.shapes import Bounds
from kernels.trial import TOLERANCE, random_tensors, try_op

NAMES = sorted(ops(config()))
DTYPES = [torch.float32, torch.bfloat16]
few = settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_kernel_agrees_with_float32_and_touches_active_rows_only(name, dtype):
    @few
    @given(cases(dtype))
    def law(case):
        made, plan, seed = case
        verdict = try_op(ops(made)[name], made, plan, seed)
        assert verdict.touched == ()
        assert verdict.error <= TOLERANCE[dtype]

    law()


@pytest.mark.parametrize("variant", ["guard", "versions"])
@pytest.mark.parametrize("name", NAMES)
def test_empty_plan_touches_nothing(name, variant):
    made = config(variant=variant)
    op = ops(made)[name]
    plan = Plan.rectangular(TINY, 0, 0)
    tensors = random_tensors(op, made, Plan.rectangular(TINY, 1, 1), 5)
    tensors["plan"][:7] = torch.from_numpy(plan.words(made.layout))
    before = {k: v.clone() for k, v in tensors.items()}
    op.plan(made, Bounds(batch=2, draft=2, context=8))(tensors)
    for key, tensor in tensors.items():
        assert torch.equal(tensor.view(torch.int32), before[key].view(torch.int32)), key


@pytest.mark.parametrize("name", NAMES)
def test_trial_sees_a_wrong_kernel(name):
    """A kernel that is not launched at all leaves NaN where results should be: the trial must not pass it."""
    made = config()
    op = ops(made)[name]
    nothing = Plan.rectangular(TINY, 0, 0)
    plan = Plan.rectangular(TINY, 2, 3)

    def skipped(config_, captured):
        launch = op.plan(config_, captured)

        def launched(tensors):
            silenced = dict(tensors, plan=torch.zeros_like(tensors["plan"]))
            silenced["plan"][:7] = torch.from_numpy(nothing.words(made.layout))
            launch(silenced)

        return launched

    broken = type(op)(op.name, op.table, skipped, op.reference, op.result)
    assert not try_op(broken, made, plan, 1).passes(torch.float32)


@few
@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_captured_grid_of_any_bound_that_covers_the_plan_gives_the_same_bits(batch, draft, data):
    made = config(torch.bfloat16, variant="guard")
    plan = Plan.rectangular(TINY, batch, draft)
    covers = Bounds(data.draw(st.integers(batch, BOUNDS.batch)), BOUNDS.draft, BOUNDS.context)
    for name in ("qkv", "attention", "lm_head"):
        op = ops(made)[name]
        results = []
        for captured in (covers, Bounds(batch, draft, BOUNDS.context)):
            tensors = random_tensors(op, made, plan, 9)
            op.plan(made, captured)(tensors)
            results.append(tensors)
        for key in results[0]:
            left, right = (r[key].contiguous().view(torch.int16) for r in results)
            assert torch.equal(left, right), (name, key)


def test_long_contexts_are_cut_in_more_parts_unless_tiles_are_given():
    wide = [
        attention_tiles(config(tiles={}, bounds=Bounds(1, 1, n))).split for n in (64, 4096, 8192, 1 << 17)
    ]
    assert wide == [8, 8, 16, 32]
    assert attention_tiles(config(bounds=Bounds(1, 1, 8192))).split == 2
