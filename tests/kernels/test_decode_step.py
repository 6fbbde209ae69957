"""The whole step over two small layers, in which every width leaves a remainder."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from kernel_cases import BASE_SLOTS, TILES, TINY, cases, config

from kernels.configurations import configurations, distinct_kernels
from kernels.op import Tiles
from kernels.plan import Plan
from kernels.program import Program, ops
from kernels.shapes import Bounds
from kernels.step import DecodeStep
from kernels.step_trial import poisoned_run, step_inputs, try_step
from kernels.trial import TOLERANCE, bits, difference, try_op
from kernels.verify import independence, overlap_changes_nothing, verify
from traces.errors import InputError


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_step_agrees_with_the_float32_step(dtype):
    @settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate])
    @given(cases(dtype))
    def law(case):
        made, plan, seed = case
        verdict = try_step(DecodeStep(made, seed=seed), plan, seed)
        assert verdict.touched == ()
        assert verdict.passes(made), verdict

    law()


class ZeroOne(DecodeStep):
    """A step in which one kernel's last call leaves zeros."""

    zeroed = ""

    def program(self, captured=None):
        whole = super().program(captured)
        calls = list(whole.calls)
        last = max(i for i, (launch, _) in enumerate(calls) if launch.op == self.zeroed)
        outputs = [
            name
            for name, spec in ops(self.config)[self.zeroed].table(self.config).items()
            if spec.role == "out"
        ]

        def zeros(tensors):
            for name in outputs:
                tensors[name][: int(self.plan.tensor[0])] = 0

        calls[last] = (zeros, calls[last][1])
        return Program(whole.captured, tuple(calls))


@pytest.mark.parametrize("op", ["combine", "gate_up", "argmax"])
def test_step_with_a_kernel_that_does_nothing_does_not_pass(op):
    made = config(torch.bfloat16, shape=replace(TINY, layers=1))
    step = ZeroOne(made, seed=1)
    step.zeroed = op
    assert not try_step(step, Plan.rectangular(TINY, 2, 1), 3).passes(made)


@pytest.mark.parametrize("variant", ["guard", "versions"])
def test_active_rows_are_bitwise_independent_of_what_runs_beside_them(variant):
    step = DecodeStep(config(torch.bfloat16, variant=variant), seed=4)
    assert independence(step, 8).fault == ""


def test_dependence_on_neighbours_is_seen(monkeypatch):
    """A step whose first row takes something of its neighbours' must not pass as independent."""
    step = DecodeStep(config(shape=replace(TINY, layers=1)), seed=4)
    whole = DecodeStep.program

    def leaking(self, captured=None):
        made = whole(self, captured)

        def leak(tensors):
            tensors["normed"][0] += step.plan.tensor[0]

        return Program(made.captured, (*made.calls, (leak, {"normed": step.buffers["normed"]})))

    monkeypatch.setattr(DecodeStep, "program", leaking)
    assert independence(step, 8).fault == "bits differ"


def test_ragged_step_gives_each_sequence_the_rows_a_rectangle_gives_it():
    one = replace(TINY, layers=1)
    rectangle_config, ragged_config = (config(torch.bfloat16, shape=one, ragged=r) for r in (False, True))
    rectangle, drafts = Plan.rectangular(TINY, 3, 4), (4, 1, 2)
    inputs = step_inputs(rectangle_config, rectangle, 2)
    kept = np.concatenate([np.arange(4 * i, 4 * i + d) for i, d in enumerate(drafts)])
    step = DecodeStep(rectangle_config, seed=6)
    poisoned_run(step, rectangle, inputs)
    ragged = DecodeStep(ragged_config, weights=step.weights)
    plan = Plan.ragged(TINY, drafts)
    poisoned_run(ragged, plan, replace(inputs, tokens=inputs.tokens[kept]))
    # Not bit for bit: a shorter draft has a shorter context to cut in parts.
    assert difference(ragged.buffers["normed"][:7], step.buffers["normed"][kept]) <= TOLERANCE[torch.bfloat16]
    assert torch.equal(ragged.next_tokens(plan), step.next_tokens(rectangle)[kept])


def test_ragged_plan_of_equal_drafts_is_the_rectangle_bit_by_bit():
    one = replace(TINY, layers=1)
    rectangle_config, ragged_config = (config(torch.bfloat16, shape=one, ragged=r) for r in (False, True))
    rectangle, ragged = Plan.rectangular(one, 2, 3), Plan.ragged(one, (3, 3))
    inputs = step_inputs(rectangle_config, rectangle, 5)
    steps = [DecodeStep(rectangle_config, seed=6)]
    steps.append(DecodeStep(ragged_config, weights=steps[0].weights))
    for step, plan in zip(steps, (rectangle, ragged), strict=True):
        poisoned_run(step, plan, inputs)
    for name in ("normed", "residual", "next_tokens", "part_weight"):
        assert torch.equal(*(bits(step.buffers[name]) for step in steps)), name


@pytest.mark.parametrize("name", ["qkv", "gate_up", "lm_head"])
@pytest.mark.parametrize("variant", ["guard", "versions"])
def test_every_body_agrees_with_float32(name, variant):
    """Rows at each edge between bodies, and more than the largest body has."""
    tiles = TILES | {"attention": Tiles(block_m=128, block_n=16)}
    made = config(torch.bfloat16, variant=variant, bounds=Bounds(75, 1, 8), tiles=tiles)
    for rows in (16, 17, 33, 64, 65, 75):
        verdict = try_op(ops(made)[name], made, Plan.rectangular(TINY, rows, 1), rows)
        assert verdict.passes(torch.bfloat16), (rows, verdict)


def test_verify_finds_nothing_wrong_on_one_row():
    """The chain a GPU runs, at its own tiles, on one row of a one-layer model."""
    findings = list(verify(replace(TINY, layers=1), Bounds(1, 1, 8), 42, "cpu"))
    assert {finding.fault for finding in findings} == {""}
    kernels = list(distinct_kernels(configurations(replace(TINY, layers=1), Bounds(1, 1, 8))))
    assert len(findings) == len(kernels) + 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": [90, 0, 0, 0]}, "tokens 0 to 90"),
        ({"tokens": [1, 2, 3]}, "tokens of shape"),
        ({"contexts": [37, 0]}, "contexts 2 to 39"),
        ({"contexts": [-3, 0]}, "contexts -1"),
        ({"tables": [[0], [1]]}, "blocks"),
        ({"tables": [[0, 1, 99, 3], [4, 5, 6, 7]]}, "KV block"),
        ({"plan": Plan.rectangular(TINY, 4, 6)}, "tokens of shape"),
        ({"plan": Plan(4, 2, 2, 41, 56, 4)}, "plan: H"),
        ({"plan": Plan.rectangular(TINY, 2, 2, BASE_SLOTS), "tables": [[40, 41, 42], [1, 2, 3]]}, "KV block"),
        ({"tokens": [0.5, 1, 2, 3]}, "tokens: not integers"),
    ],
)
def test_step_that_would_read_or_write_elsewhere_is_refused(change, message):
    step = DecodeStep(config(), seed=1)
    fields = {"plan": Plan.rectangular(TINY, 2, 2), "tokens": [1, 2, 3, 4], "contexts": [7, 3]}
    fields["tables"] = [[0, 1, 2], [3, 4, 5]]
    step.load(**fields)
    held = step.plan.tensor.clone()
    with pytest.raises(InputError, match=message):
        step.load(**(fields | change))
    assert torch.equal(step.plan.tensor, held)


def test_overlapping_launches_need_a_gpu_that_has_them():
    with pytest.raises(InputError, match="compute capability"):
        DecodeStep(config(overlap=True))


@pytest.mark.parametrize("overlap", [False, True])
def test_every_launch_of_a_step_overlaps_or_none_does(overlap):
    made = config(overlap=overlap)
    launches = [op.plan(made, made.bounds) for op in ops(made).values()]
    assert {launch.options.get("launch_pdl", False) for launch in launches} == {overlap}
    assert {launch.constants["OVERLAP"] for launch in launches} == {overlap}


def test_steps_that_are_compared_for_overlap_are_seen_to_differ():
    """Two equal steps have equal bits; one with other weights has not."""
    one = replace(TINY, layers=1)
    made = config(shape=one, bounds=Bounds(1, 1, 8))
    left, right = DecodeStep(made, seed=1), DecodeStep(made, seed=2)
    same = DecodeStep(made, weights=left.weights)
    assert {f.fault for f in overlap_changes_nothing(left, same, 3)} == {""}
    assert {f.fault for f in overlap_changes_nothing(left, right, 3)} == {"bits differ"}


def test_program_beyond_the_buffers_is_refused():
    step = DecodeStep(config(), seed=1)
    with pytest.raises(InputError, match="beyond"):
        step.program(Bounds(5, 5, 38))


def test_no_kernel_takes_a_host_scalar():
    """Replay repeats what was captured: a launch is pointers and constants, and only the plan changes."""
    step = DecodeStep(config(), seed=1)
    for launch, tensors in step.program().calls:
        assert all(isinstance(t, torch.Tensor) for t in tensors.values())
        assert set(launch.kernel.arg_names) == set(tensors) | set(launch.constants)


def test_programs_share_buffers_and_differ_in_grids_only():
    """Graphs of any bound see the same addresses: the plan and the inputs are written once, whichever is replayed."""
    step = DecodeStep(config(), seed=1)
    whole, small = step.program(), step.program(Bounds(1, 2, 38))
    assert small.programs < whole.programs
    for (left, left_tensors), (right, right_tensors) in zip(whole.calls, small.calls, strict=True):
        assert (left.kernel, left.constants) == (right.kernel, right.constants)
        assert all(left_tensors[k].data_ptr() == right_tensors[k].data_ptr() for k in left_tensors)
