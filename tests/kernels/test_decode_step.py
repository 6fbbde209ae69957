"""The whole step over two small layers, in which every width leaves a remainder."""

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from kernel_cases import BASE_SLOTS, BOUNDS, TILES, TINY, cases, config

from kernels.op import Tiles
from kernels.plan import Plan
from kernels.program import ops
from kernels.reference import reference_step
from kernels.shapes import Bounds
from kernels.step import DecodeStep
from kernels.trial import TOLERANCE, bits, difference, poison, try_op
from traces import draws
from traces.errors import InputError


def inputs(made, plan, seed):
    """Tokens, contexts and tables of a step; tables are a permutation of the pool's blocks."""
    rng = np.random.default_rng(draws.bits(seed, "step inputs"))
    contexts = rng.integers(0, made.bounds.context - plan.draft + 1, plan.batch)
    pool = (made.slots - plan.slot_base) // made.page
    tables = rng.permutation(pool)[: plan.batch * made.blocks].reshape(plan.batch, made.blocks)
    return rng.integers(0, TINY.vocab, plan.rows), contexts, tables


def run(step, plan, given, captured=None, seed=1):
    """Run one step with every activation row past M poisoned, the cache at random."""
    generator = torch.Generator()
    generator.manual_seed(seed)
    for cache in (step.cache.keys, step.cache.values):
        cache.copy_(torch.randn(cache.shape, generator=generator))
    for name, buffer in step.buffers.items():
        if name not in ("plan", "tokens", "contexts", "tables", "turns"):
            poison(buffer)
    before = step.cache.float()
    step.load(plan, *given)
    step.program(captured).launch()
    return before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_step_agrees_with_the_float32_step(dtype):
    @settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate])
    @given(cases(dtype))
    def law(case):
        made, plan, seed = case
        step = DecodeStep(made, seed=seed)
        given = inputs(made, plan, seed)
        reference = run(step, plan, given)
        before = reference.float()
        want = reference_step(made, step.weights, reference, plan, *map(torch.from_numpy, given))
        # Two layers of roundings: twice an op's tolerance for states, as much for what they leave in the cache.
        tolerance = 2 * TOLERANCE[dtype]
        assert difference(step.buffers["normed"][: plan.rows], want.states) <= tolerance
        assert difference(step.cache.keys, reference.keys) <= tolerance
        assert difference(step.cache.values, reference.values) <= tolerance
        untouched = before.keys == reference.keys
        assert torch.equal(step.cache.keys.float()[untouched], before.keys[untouched])
        chosen = want.logits.gather(1, step.next_tokens(plan).long()[:, None])[:, 0]
        best = want.logits.max(1).values
        assert ((best - chosen) / best.abs().max() <= tolerance).all()
        assert (step.buffers["normed"][plan.rows :].isnan()).all()
        assert (step.buffers["next_tokens"][plan.rows :] < 0).all()

    law()


@pytest.mark.parametrize("variant", ["guard", "versions"])
def test_active_rows_are_bitwise_independent_of_what_runs_beside_them(variant):
    """Two sequences alone, and the same two beside a third that a larger graph serves: one body, equal bits."""
    made = config(torch.bfloat16, variant=variant)
    step = DecodeStep(made, seed=4)
    three = Plan.rectangular(TINY, 3, 3)
    two = Plan.rectangular(TINY, 2, 3)
    tokens, contexts, tables = inputs(made, three, 8)
    run(step, three, (tokens, contexts, tables))
    beside = {k: step.buffers[k][:6].clone() for k in ("normed", "residual", "next_tokens")}
    run(step, two, (tokens[:6], contexts[:2], tables[:2]), Bounds(2, 3, BOUNDS.context))
    for name, rows in beside.items():
        assert torch.equal(bits(step.buffers[name][:6]), bits(rows)), name


def test_ragged_step_gives_each_sequence_the_rows_a_rectangle_gives_it():
    """Equal bits for the tokens that both compute: no row depends on the shape of its neighbours."""
    ragged_config, rectangle_config = (config(torch.bfloat16, ragged=r) for r in (True, False))
    rectangle = Plan.rectangular(TINY, 3, 4)
    drafts = (4, 1, 2)
    tokens, contexts, tables = inputs(rectangle_config, rectangle, 2)
    kept = np.concatenate([np.arange(4 * i, 4 * i + d) for i, d in enumerate(drafts)])
    step = DecodeStep(rectangle_config, seed=6)
    run(step, rectangle, (tokens, contexts, tables))
    ragged = DecodeStep(ragged_config, weights=step.weights)
    plan = Plan.ragged(TINY, drafts)
    run(ragged, plan, (tokens[kept], contexts, tables))
    assert difference(ragged.buffers["normed"][:7], step.buffers["normed"][kept]) <= TOLERANCE[torch.bfloat16]
    assert torch.equal(ragged.next_tokens(plan), step.next_tokens(rectangle)[kept])


@pytest.mark.parametrize("name", ["qkv", "gate_up", "lm_head"])
@pytest.mark.parametrize("variant", ["guard", "versions"])
def test_every_body_agrees_with_float32(name, variant):
    """Rows at each edge between bodies, and more than the largest body has."""
    tiles = TILES | {"attention": Tiles(block_m=128, block_n=16)}
    made = config(torch.bfloat16, variant=variant, bounds=Bounds(75, 1, 8), tiles=tiles)
    for rows in (16, 17, 33, 64, 65, 75):
        verdict = try_op(ops(made)[name], made, Plan.rectangular(TINY, rows, 1), rows)
        assert verdict.passes(torch.bfloat16), (rows, verdict)


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
    ],
)
def test_step_that_would_read_or_write_elsewhere_is_refused(change, message):
    made = config(bounds=Bounds(4, 5, 38))
    step = DecodeStep(made, seed=1)
    fields = {"plan": Plan.rectangular(TINY, 2, 2), "tokens": [1, 2, 3, 4], "contexts": [7, 3]}
    fields["tables"] = [[0, 1, 2], [3, 4, 5]]
    step.load(**fields)
    held = step.plan.tensor.clone()
    with pytest.raises(InputError, match=message):
        step.load(**(fields | change))
    assert torch.equal(step.plan.tensor, held)


def test_program_beyond_the_buffers_is_refused():
    step = DecodeStep(config(), seed=1)
    with pytest.raises(InputError, match="beyond"):
        step.program(Bounds(5, 5, 38))


def test_no_kernel_takes_a_host_scalar():
    """Replay repeats what was captured: a launch is pointers and constants, and only the plan changes."""
    step = DecodeStep(config(), seed=1)
    for launch, tensors in step.program().calls:
        assert all(isinstance(t, torch.Tensor) for t in tensors.values())
        parameters = set(launch.kernel.arg_names)
        assert parameters == set(tensors) | set(launch.constants)
