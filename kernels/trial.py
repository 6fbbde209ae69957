"""One op on random inputs against its float32 reference, with everything poisoned that it must not touch.

Rows past the plan's M, KV slots that no block table names and parts that hold no keys are NaN (integers: a sentinel):
a kernel that reads one is wrong everywhere, one that writes there is seen by its bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.op import Op, Spec, StepConfig
from kernels.ops.combine import written_parts
from kernels.ops.rows import places
from kernels.plan import Plan
from kernels.shapes import Bounds
from traces import draws

SENTINEL = -(1 << 30)
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 1.2e-2}


@dataclass(frozen=True)
class Verdict:
    """What a trial found.

    error     largest difference from the reference, over the reference's largest number; inf where only one is NaN
    touched   tensors that changed where they must not
    """

    op: str
    error: float
    touched: tuple[str, ...]

    def passes(self, dtype: torch.dtype) -> bool:
        """Say whether the op is right for tensors of `dtype`."""
        return not self.touched and self.error <= TOLERANCE[dtype]


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill with NaN, or the sentinel for integers. Mutates and returns `tensor`."""
    return tensor.fill_(float("nan") if tensor.is_floating_point() else SENTINEL)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bit patterns, which compare equal where NaN does not."""
    return tensor.contiguous().view(torch.int16 if tensor.element_size() == 2 else torch.int32)


def difference(got: torch.Tensor, want: torch.Tensor) -> float:
    """Return the largest difference over the largest number wanted; NaN equals NaN and nothing else."""
    got, want = got.float(), want.float()
    if not torch.equal(got.isnan(), want.isnan()):
        return float("inf")
    if not want.numel():
        return 0.0
    largest = max(float(want.nan_to_num().abs().max()), 1e-30)
    return float((got - want).nan_to_num().abs().max()) / largest


def held_slots(config: StepConfig, plan: Plan, contexts: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
    """Return int64: the slots of all keys the step sees, the new tokens' own included."""
    sequence, place = places(plan)
    slots = [torch.zeros(0, dtype=torch.int64)]
    for s in range(plan.batch):
        total = int(contexts[s]) + int(place[sequence == s].max()) + 1
        position = torch.arange(total)
        block = tables[s].long()[position // config.page]
        slots.append(plan.slot_base + block * config.page + position % config.page)
    return torch.cat(slots)


def new_slots(config: StepConfig, plan: Plan, contexts: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
    """Return int64[rows]: the slots the new tokens' keys and values go to."""
    sequence, place = places(plan)
    position = contexts.long()[sequence] + place
    block = tables.long()[sequence, position // config.page]
    return plan.slot_base + block * config.page + position % config.page


def random_tensors(op: Op, config: StepConfig, plan: Plan, seed: int) -> dict[str, torch.Tensor]:
    """Return the op's tensors on the CPU: inputs at random, outputs and all that is inactive poisoned."""
    table = op.table(config)
    generator = torch.Generator()
    generator.manual_seed(draws.bits(seed, "kernel trial " + op.name) >> 1)

    def integers(top: int, *size: int) -> torch.Tensor:
        return torch.randint(top, size, generator=generator, dtype=torch.int32)

    def fresh(name: str, spec: Spec) -> torch.Tensor:
        if spec.role == "out":
            return poison(torch.empty(spec.shape, dtype=spec.dtype))
        if spec.dtype == torch.int32:
            return integers(config.shape.vocab, *spec.shape)
        return torch.randn(spec.shape, generator=generator).to(spec.dtype)

    tensors = {name: fresh(name, spec) for name, spec in table.items()}
    tensors["plan"] = poison(tensors["plan"])
    words = torch.from_numpy(plan.words(config.layout))
    tensors["plan"][: len(words)] = words
    contexts = integers(config.bounds.context - plan.draft + 1, config.bounds.batch)
    blocks = (config.slots - plan.slot_base) // config.page
    order = torch.randperm(blocks, generator=generator, dtype=torch.int32)
    tables = order[: config.bounds.batch * config.blocks].view(config.bounds.batch, config.blocks).clone()
    if "contexts" in table:
        tensors["contexts"] = contexts
    if "tables" in table:
        tensors["tables"] = tables
    for name in ("k_cache", "v_cache"):
        if name in table:
            held = held_slots(config, plan, contexts, tables)
            tensors[name] = poison(torch.empty_like(tensors[name])).index_copy_(0, held, tensors[name][held])
    for name in ("part_out", "part_weight"):
        if name in table and table[name].role == "in":
            active = tensors[name][:, : plan.rows]
            active[~written_parts(config, plan, contexts)] = float("nan")
    for name, spec in table.items():
        if spec.rows is not None:
            poison(tensors[name].narrow(spec.rows, plan.rows, spec.shape[spec.rows] - plan.rows))
    return tensors


def try_op(
    op: Op, config: StepConfig, plan: Plan, seed: int, *, device: str = "cpu", captured: Bounds | None = None
) -> Verdict:
    """Run the op once on `device` and compare; `captured` are the grid's bounds (the config's if None)."""
    before = random_tensors(op, config, plan, seed)
    on_device = {name: tensor.clone().to(device) for name, tensor in before.items()}
    op.plan(config, captured or config.bounds)(on_device)
    after = {name: tensor.cpu() for name, tensor in on_device.items()}
    want = op.reference(config, plan, before)
    got = op.result(plan, after)
    error = 0.0
    for name, reference in want.items():
        exact = not reference.is_floating_point() and not torch.equal(got[name].long(), reference.long())
        error = max(error, float("inf") if exact else difference(got[name], reference))
    touched = []
    for name, spec in op.table(config).items():
        old, new = bits(before[name]), bits(after[name])
        if spec.rows is not None and spec.role != "in":
            past = (spec.rows, plan.rows, spec.shape[spec.rows] - plan.rows)
            old, new = old.narrow(*past), new.narrow(*past)
        elif spec.role != "in":
            continue  # the KV cache: what no row names is NaN, and the reference keeps it so
        if not torch.equal(old, new):
            touched.append(name)
    return Verdict(op.name, error, tuple(touched))
