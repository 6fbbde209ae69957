"""One decode step on random inputs against the float32 step, with everything poisoned that it must not touch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.op import StepConfig
from kernels.plan import Plan
from kernels.reference import reference_step
from kernels.shapes import Bounds
from kernels.step import DecodeStep
from kernels.trial import TOLERANCE, bits, difference, held_slots, new_slots, poison
from kernels.weights import KvCache
from traces import draws

INPUTS = ("plan", "tokens", "contexts", "tables", "turns")


@dataclass(frozen=True)
class StepInputs:
    """What the engine gives a step: tokens [rows], contexts [batch], tables [batch, blocks]."""

    tokens: NDArray[np.int64]
    contexts: NDArray[np.int64]
    tables: NDArray[np.int64]

    def tensors(self, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return (tokens, contexts, tables) as tensors."""
        tokens, contexts, tables = (
            torch.from_numpy(x).to(device) for x in (self.tokens, self.contexts, self.tables)
        )
        return tokens, contexts, tables


@dataclass(frozen=True)
class StepVerdict:
    """What a trial of a step found.

    error      largest difference of the last states, over their largest number
    kv_error   likewise of keys and values in the cache
    regret     how far the chosen tokens' logits lie below the best, over the largest logit
    touched    buffers with a changed row past M, "cache" for a slot that no new token owns
    """

    error: float
    kv_error: float
    regret: float
    touched: tuple[str, ...]

    def passes(self, config: StepConfig) -> bool:
        """Say whether the step is right. Roundings of layers add like independent errors, hence the root.

        Measured with bfloat16 on narrow models: 0.5 to 1.1 % of the largest state after 2 layers (six seeds), 0.9 %
        after 12, 1.8 % after 36 (one each); the tolerance is 1.7, 4.2 and 7.2 %.
        """
        tolerance = TOLERANCE[config.dtype] * math.sqrt(max(config.shape.layers, 2))
        return not self.touched and max(self.error, self.kv_error, self.regret) <= tolerance


def step_inputs(config: StepConfig, plan: Plan, seed: int) -> StepInputs:
    """Return inputs at random within the bounds; block tables are a permutation of the pool's blocks."""
    rng = np.random.default_rng(draws.bits(seed, "step inputs"))
    contexts = rng.integers(0, config.bounds.context - plan.draft + 1, plan.batch)
    pool = (config.slots - plan.slot_base) // config.page
    tables = rng.permutation(pool)[: plan.batch * config.blocks].reshape(plan.batch, config.blocks)
    return StepInputs(rng.integers(0, config.shape.vocab, plan.rows), contexts, tables)


def poisoned_run(
    step: DecodeStep, plan: Plan, inputs: StepInputs, captured: Bounds | None = None, seed: int = 1
) -> KvCache:
    """Run a step with NaN in every activation and in every KV slot it does not see; return the cache before.

    Mutates the step's buffers and cache.
    """
    tokens, contexts, tables = inputs.tensors()
    unseen = torch.ones(step.config.slots, dtype=torch.bool)
    unseen[held_slots(step.config, plan, contexts, tables)] = False
    generator = torch.Generator(step.device)
    generator.manual_seed(draws.bits(seed, "kv contents") >> 1)
    for cache in (step.cache.keys, step.cache.values):
        # What a slot holds depends on the slot only: runs with other sequences see the same contexts.
        cache.normal_(generator=generator)
        cache[:, unseen.to(cache.device)] = float("nan")
    for name, buffer in step.buffers.items():
        if name not in INPUTS:
            poison(buffer)
    before = KvCache(step.cache.keys.clone(), step.cache.values.clone())
    step.load(plan, tokens.numpy(), contexts.numpy(), tables.numpy())
    step.program(captured).launch()
    return before


def try_step(step: DecodeStep, plan: Plan, seed: int, captured: Bounds | None = None) -> StepVerdict:
    """Run one step and compare it with the float32 step. Mutates the step's buffers and cache."""
    config = step.config
    inputs = step_inputs(config, plan, seed)
    before = poisoned_run(step, plan, inputs, captured, seed)
    reference = before.float()
    want = reference_step(config, step.weights, reference, plan, *inputs.tensors(step.device))
    states = step.buffers["normed"][: plan.rows]
    best = want.logits.max(1).values
    tokens = step.next_tokens(plan).long()
    known = (tokens >= 0) & (tokens < config.shape.vocab)
    chosen = want.logits.gather(1, torch.where(known, tokens, 0)[:, None])[:, 0]
    chosen[~known] = -torch.inf
    touched = []
    for name in ("normed", "residual", "next_tokens", "q", "joined", "activated"):
        past = step.buffers[name][plan.rows :]
        if not torch.equal(bits(past), bits(poison(past.clone()))):
            touched.append(name)
    kv_error = 0.0
    others = torch.ones(config.slots, dtype=torch.bool)
    _, contexts, tables = inputs.tensors()
    others[new_slots(config, plan, contexts, tables)] = False
    others = others.to(step.device)
    for got, wanted, old in (
        (step.cache.keys, reference.keys, before.keys),
        (step.cache.values, reference.values, before.values),
    ):
        kv_error = max(kv_error, difference(got, wanted))
        if not torch.equal(bits(got[:, others]), bits(old[:, others])) and "cache" not in touched:
            touched.append("cache")
    regret = float(((best - chosen) / best.abs().max()).max()) if plan.rows else 0.0
    return StepVerdict(difference(states, want.states), kv_error, regret, tuple(touched))
