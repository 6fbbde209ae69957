"""A decode step: buffers at fixed addresses, the plan and the step's inputs, and programs over them.

step = DecodeStep(StepConfig(QWEN25_3B, Bounds(batch=16, draft=8, context=4096)), device="cuda")
program = step.program()                     # grids for the bounds: what a graph captures, once
step.load(plan, tokens, contexts, tables)    # one small copy for the plan, one for the inputs
program.launch()                             # or the replay of the graph
step.next_tokens(plan)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from kernels.op import StepConfig
from kernels.ops.rotary import turns
from kernels.plan import Plan, PlanBuffer
from kernels.program import Program, buffer_specs, build
from kernels.shapes import Bounds
from kernels.staging import StagingRing, copies_for
from kernels.weights import KvCache, Weights
from traces.errors import InputError


class DecodeStep:
    """Owns weights, KV cache, activations, plan and inputs on one device.

    weights   random from `seed` where none are given
    buffers   name -> tensor; "next_tokens" and "normed" hold a step's results
    """

    def __init__(
        self, config: StepConfig, *, weights: Weights | None = None, seed: int = 0, device: str = "cpu"
    ) -> None:
        if config.overlap and (device == "cpu" or torch.cuda.get_device_capability(device) < (9, 0)):
            raise InputError(f"overlap on {device}; allowed: a GPU of compute capability 9.0 or more")
        self.config, self.device = config, device
        self.weights = weights or Weights.random(config, seed, device)
        self.cache = KvCache.empty(config, device)
        bounds, copies = config.bounds, copies_for(device)
        self.plan = PlanBuffer(bounds, config.layout, copies, ragged=config.ragged)
        self._n_table = bounds.batch * config.blocks
        n_inputs = bounds.rows + bounds.batch + self._n_table
        self._inputs = copies.device_words(n_inputs)
        self._ring = StagingRing(copies, n_inputs, depth=4)
        self._words = np.zeros(n_inputs, dtype=np.int32)
        tokens, contexts, tables = torch.split(self._inputs, [bounds.rows, bounds.batch, self._n_table])
        self.buffers = {
            name: torch.zeros(spec.shape, dtype=spec.dtype, device=device)
            for name, spec in buffer_specs(config).items()
        } | {
            "plan": self.plan.tensor,
            "tokens": tokens,
            "contexts": contexts,
            "tables": tables.view(bounds.batch, config.blocks),
            "turns": turns(config, device),
        }

    def program(self, captured: Bounds | None = None) -> Program:
        """Return launches whose grids cover `captured` (the config's bounds if None), over the same buffers."""
        captured = captured or self.config.bounds
        if not self.config.bounds.covers(captured):
            raise InputError(f"program: {captured} is beyond what buffers are allocated for")
        return build(self.config, captured, self.weights, self.cache, self.buffers)

    def load(self, plan: Plan, tokens: ArrayLike, contexts: ArrayLike, tables: ArrayLike) -> None:
        """Enqueue a step's plan and inputs on the launch stream.

        tokens     int[rows]: the new tokens, sequence by sequence
        contexts   int[batch]: KV tokens each sequence holds before the step
        tables     int[batch, up to blocks]: its KV blocks, counted from the plan's slot base

        Mutates the device's inputs when the stream comes to the copies. Raises InputError for what the bounds, the
        model or the KV pool do not cover: a graph replayed on it would read or write where it must not.
        """
        shape = self.config.shape
        if (plan.hidden, plan.intermediate, plan.heads) != (shape.hidden, shape.intermediate, shape.heads):
            raise InputError(
                f"plan: H, I, N_h {plan.hidden}, {plan.intermediate}, {plan.heads}; allowed: {shape.name}'s "
                f"{shape.hidden}, {shape.intermediate}, {shape.heads}"
            )
        words = self._packed(plan, np.asarray(tokens), np.asarray(contexts), np.asarray(tables))
        self.plan.update(plan)
        self._ring.write(words, self._inputs)

    def next_tokens(self, plan: Plan) -> torch.Tensor:
        """Return int32[rows] on the device: the argmax after every new token."""
        tokens: torch.Tensor = self.buffers["next_tokens"]
        return tokens[: plan.rows]

    def _packed(self, plan: Plan, tokens: np.ndarray, contexts: np.ndarray, tables: np.ndarray) -> np.ndarray:
        bounds, config = self.config.bounds, self.config
        for name, array, shape in (
            ("tokens", tokens, (plan.rows,)),
            ("contexts", contexts, (plan.batch,)),
            ("tables", tables[:, :0] if tables.ndim == 2 else tables, (plan.batch, 0)),
        ):
            if array.size and not np.issubdtype(array.dtype, np.integer):
                raise InputError(f"step: {name}: not integers, {array.dtype}")
            if array.shape != shape:
                raise InputError(f"step: {name} of shape {array.shape}; allowed: {shape}")
        plan.check(bounds)
        drafts = np.array(plan.drafts or (plan.draft,) * plan.batch)
        self._inside("tokens", tokens, 0, config.shape.vocab)
        self._inside("contexts", contexts + drafts, 1, bounds.context + 1, "the context bound")
        last_blocks = -(-(contexts + drafts) // config.page)
        if plan.batch and tables.shape[1] < last_blocks.max():
            raise InputError(
                f"step: tables of {tables.shape[1]} blocks; a sequence needs {last_blocks.max()}"
            )
        held = np.arange(tables.shape[1]) < last_blocks[:, None]
        top = (config.slots - plan.slot_base) // config.page
        self._inside("KV block", tables[held], 0, top, "the pool")
        words = self._words
        words[:] = 0
        words[: plan.rows] = tokens
        words[bounds.rows : bounds.rows + plan.batch] = contexts
        table = words[bounds.rows + bounds.batch :].reshape(bounds.batch, config.blocks)
        table[: plan.batch, : tables.shape[1]] = np.where(held, tables, 0)[:, : config.blocks]
        return words

    @staticmethod
    def _inside(name: str, values: NDArray[Any], low: int, high: int, why: str = "the vocabulary") -> None:
        if values.size and not (low <= values.min() and values.max() < high):
            raise InputError(
                f"step: {name} {values.min()} to {values.max()}; allowed: within {why}, {high - 1}"
            )
