"""Numerics on a GPU: every kernel and the whole step at the evaluated dimensions, against float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from kernels.configurations import configurations, distinct_kernels, overlapping
from kernels.op import StepConfig
from kernels.plan import Plan
from kernels.shapes import Bounds, DecodeShape
from kernels.step import DecodeStep
from kernels.step_trial import poisoned_run, step_inputs, try_step
from kernels.trial import bits, try_op
from traces.errors import InputError

# Rows on both sides of each body's edge, and the bounds themselves.
SHAPES = ((1, 1), (2, 8), (17, 1), (11, 3), (13, 5), (16, 8))
RAGGED = (8, 1, 3, 5, 1, 7)


@dataclass(frozen=True)
class Finding:
    """One comparison. what: which; error: as the trial measures it; fault: what is wrong, "" for nothing."""

    what: str
    error: float
    fault: str


def need_gpu() -> str:
    """Return the CUDA device; raises InputError where torch sees none."""
    if not torch.cuda.is_available():
        raise InputError(
            "verify: torch sees no CUDA device; without one, tests/kernels interprets the kernels"
        )
    return "cuda"


def plans(config: StepConfig) -> list[Plan]:
    """Return the plans that are tried: those of SHAPES and RAGGED that lie within the bounds."""
    bounds = config.bounds
    if config.ragged:
        drafts = [min(d, bounds.draft) for d in RAGGED[: bounds.batch]]
        return [Plan.ragged(config.shape, drafts)]
    sizes = [(b, d) for b, d in SHAPES if b <= bounds.batch and d <= bounds.draft]
    return [Plan.rectangular(config.shape, b, d) for b, d in sizes]


def verify(shape: DecodeShape, bounds: Bounds, seed: int, device: str) -> Iterator[Finding]:
    """Yield findings as they are made: ops first, so that a wrong step names its kernel."""
    configs = configurations(shape, bounds)
    for label, config, name, op in distinct_kernels(configs):
        for plan in dict.fromkeys((plans(config)[0], plans(config)[-1])):
            found = try_op(op, config, plan, seed, device=device)
            right = found.passes(config.dtype)
            fault = "" if right else f"error {found.error:.2g}, touched {found.touched}"
            yield Finding(f"{name} {label} M={plan.rows}", found.error, fault)
    step: DecodeStep | None = None
    for label, config in configs.items():
        step = DecodeStep(config, weights=step.weights if step else None, seed=seed, device=device)
        for plan in plans(config):
            result = try_step(step, plan, seed)
            fault = "" if result.passes(config) else str(result)
            yield Finding(f"step {label} B={plan.batch} d={plan.draft}", result.error, fault)
        if not config.ragged and bounds.batch > 1:
            yield independence(step, seed)
    if step is not None and device != "cpu" and torch.cuda.get_device_capability(device) >= (9, 0):
        plain = DecodeStep(configs["versions"], weights=step.weights, device=device)
        early = DecodeStep(overlapping(shape, bounds), weights=step.weights, device=device)
        yield from overlap_changes_nothing(plain, early, seed)


def overlap_changes_nothing(plain: DecodeStep, early: DecodeStep, seed: int) -> Iterator[Finding]:
    """Compare bits of steps whose launches overlap with those of steps that wait, three times a plan."""
    for plan in plans(plain.config):
        inputs = step_inputs(plain.config, plan, seed)
        poisoned_run(plain, plan, inputs, None, seed)
        for _ in range(3):
            poisoned_run(early, plan, inputs, None, seed)
            same = all(
                torch.equal(bits(a), bits(b))
                for a, b in (
                    (plain.buffers["normed"], early.buffers["normed"]),
                    (plain.buffers["next_tokens"], early.buffers["next_tokens"]),
                    (plain.cache.keys, early.cache.keys),
                    (plain.cache.values, early.cache.values),
                )
            )
            fault = "" if same else "bits differ"
            yield Finding(f"overlap changes nothing B={plan.batch} d={plan.draft}", 0.0, fault)


def independence(step: DecodeStep, seed: int) -> Finding:
    """Compare bits of a sequence's rows: alone in a small grid, and beside another sequence in the full grid."""
    shape, bounds = step.config.shape, step.config.bounds
    draft = min(bounds.draft, 4)
    pair, alone = Plan.rectangular(shape, 2, draft), Plan.rectangular(shape, 1, draft)
    both = step_inputs(step.config, pair, seed)
    first = replace(both, tokens=both.tokens[:draft], contexts=both.contexts[:1], tables=both.tables[:1])
    poisoned_run(step, alone, first, Bounds(1, draft, bounds.context), seed)
    wanted = step.buffers["normed"][:draft].clone()
    poisoned_run(step, pair, both, None, seed)
    same = torch.equal(bits(step.buffers["normed"][:draft]), bits(wanted))
    return Finding(f"rows alone and beside others, {step.config.variant}", 0.0, "" if same else "bits differ")
