"""What times steps: a GPU, or a stand-in whose times are made up and say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

from kernels.bench.points import Point, Strategy
from kernels.graphs.cuda import CudaRecorder
from kernels.graphs.replayer import Account, Replayer
from kernels.graphs.work import StepWork
from kernels.op import StepConfig
from kernels.plan import Plan
from kernels.shapes import Bounds, DecodeShape
from kernels.step import DecodeStep
from kernels.weights import Weights
from policies.api import HostInfo
from policies.registry import load
from traces import draws
from traces.errors import InputError

_SPIN_CYCLES = 2_000_000  # about a millisecond


class Machine(Protocol):
    """Times one strategy at a time, all in microseconds."""

    def about(self) -> dict[str, Any]:
        """Return what the rows hold for: device, versions, and whether times are synthetic."""
        ...

    def prepare(self, strategy: Strategy) -> Account:
        """Build a strategy's graphs; return what that took. Mutates."""
        ...

    def step_us(self, point: Point, repeats: int) -> list[float]:
        """Return the durations of a step under the prepared strategy."""
        ...

    def update_us(self, repeats: int) -> list[float]:
        """Return the durations of one update of the plan buffer."""
        ...


class Gpu:
    """The current CUDA device. Weights are made once and shared by all strategies."""

    def __init__(self, shape: DecodeShape, bounds: Bounds, host: HostInfo, seed: int) -> None:
        if not torch.cuda.is_available():
            raise InputError(
                "bench: torch sees no CUDA device; --dry-run walks the same points on made-up times"
            )
        self._shape, self._bounds, self._host, self._seed = shape, bounds, host, seed
        self._weights: Weights | None = None
        self._replayer: Replayer | None = None

    def about(self) -> dict[str, Any]:
        """Return device and versions."""
        import triton

        properties = torch.cuda.get_device_properties(0)
        return {
            "device": properties.name, "memory_bytes": properties.total_memory, "synthetic": False,
            "torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda,
        }  # fmt: skip

    def prepare(self, strategy: Strategy) -> Account:
        """Build a strategy's graphs in place of the last one's. Mutates."""
        self._replayer = None  # frees the graphs before
        torch.cuda.empty_cache()
        config = StepConfig(self._shape, self._bounds, variant=strategy.variant, ragged=strategy.ragged)
        self._weights = self._weights or Weights.random(config, self._seed, "cuda")
        step = DecodeStep(config, weights=self._weights, device="cuda")
        # Compilation is no part of a capture: every policy finds the kernels ready.
        plan = Plan.rectangular(self._shape, 1, 1)
        if strategy.ragged:
            plan = Plan.ragged(self._shape, [1])
        step.load(plan, [0], [0], np.arange(config.blocks)[None, :])
        step.program().launch()
        torch.cuda.synchronize()
        policy: Any = load("bucketers", strategy.bucketer, dict(strategy.options))
        self._replayer = Replayer(step, policy, self._host, CudaRecorder())
        return self._replayer.account

    def step_us(self, point: Point, repeats: int) -> list[float]:
        """Time plan update, inputs and replay between two events, a replay at a time."""
        assert self._replayer is not None
        replayer, work = self._replayer, self._work(point)
        for _ in range(3):
            replayer.launch(replayer.choose(work))
        return self._timed(lambda: replayer.launch(replayer.choose(work)), repeats)

    def update_us(self, repeats: int) -> list[float]:
        """Time the 28-byte copy alone."""
        assert self._replayer is not None
        step = self._replayer.step
        ragged = step.config.ragged
        plan = Plan.ragged(self._shape, [1]) if ragged else Plan.rectangular(self._shape, 1, 1)
        return self._timed(lambda: step.plan.update(plan), repeats)

    def _timed(self, enqueue: Callable[[], object], repeats: int) -> list[float]:
        make: Callable[..., Any] = torch.cuda.Event
        marks = [(make(enable_timing=True), make(enable_timing=True)) for _ in range(repeats)]
        torch.cuda.synchronize()
        spin: Callable[[int], None] = torch.cuda._sleep
        for start, end in marks:
            # The host enqueues the whole of it while the GPU spins: between the events no time is the host's, but for
            # eager launches, which take longer than the spin.
            spin(_SPIN_CYCLES)
            start.record()
            enqueue()
            end.record()
        torch.cuda.synchronize()
        return [1000.0 * start.elapsed_time(end) for start, end in marks]

    def _work(self, point: Point) -> StepWork:
        assert self._replayer is not None
        config = self._replayer.step.config
        rng = np.random.default_rng(draws.bits(self._seed, "bench work", point.rows, point.context))
        pool = config.slots // config.page
        tables = rng.permutation(pool)[: point.batch * config.blocks].reshape(point.batch, config.blocks)
        tokens = tuple(rng.integers(0, self._shape.vocab, point.draft) for _ in range(point.batch))
        return StepWork(tokens, np.full(point.batch, point.context), tables)


class MadeUp:
    """Times from a formula, with noise keyed by the point: shows that the chain works, and nothing about a GPU."""

    BASE_US, SLOPE_US, KV_NS_PER_TOKEN, GUARD_NS, UPDATE_US = 1600.0, 5.0, 9.0, 900.0, 3.0
    CAPTURE_MS, GRAPH_BYTES, EAGER_US = 40.0, 9 << 20, 2600.0

    def __init__(self, host: HostInfo) -> None:
        self._host = host
        self._strategy: Strategy | None = None

    def about(self) -> dict[str, Any]:
        """Return that nothing was measured."""
        return {"device": "none: made-up times", "synthetic": True, "torch": "", "triton": "", "cuda": ""}

    def prepare(self, strategy: Strategy) -> Account:
        """Say what the policy would capture, at a made-up price. Mutates."""
        from kernels.graphs.replayer import Built

        self._strategy = strategy
        policy: Any = load("bucketers", strategy.bucketer, dict(strategy.options))
        account = Account()
        for width in policy.plan(self._host):
            account.built.append(Built(width, width, self.CAPTURE_MS / 1000, self.GRAPH_BYTES, False))
        return account

    def step_us(self, point: Point, repeats: int) -> list[float]:
        """Return the formula's time with 1 % of noise."""
        assert self._strategy is not None
        policy: Any = load("bucketers", self._strategy.bucketer, dict(self._strategy.options))
        work = StepWork(
            tuple(np.zeros(point.draft, dtype=np.int64) for _ in range(point.batch)),
            np.full(point.batch, point.context), np.zeros((point.batch, 1), dtype=np.int64),
        )  # fmt: skip
        choice = policy.pick(policy.new_state(self._host), policy.plan(self._host), work.shape())
        us = (
            self.BASE_US
            + self.SLOPE_US * choice.active
            + self.GUARD_NS / 1000 * (choice.executed - choice.active)
        )
        us += self.KV_NS_PER_TOKEN / 1000 * work.shape().context_tokens
        us = max(us, self.EAGER_US) if choice.key is None else us + self.UPDATE_US
        noise = [draws.uniform(0, "made-up noise", point.rows, point.context, i) for i in range(repeats)]
        return [us * (1 + 0.02 * (n - 0.5)) for n in noise]

    def update_us(self, repeats: int) -> list[float]:
        """Return the formula's time."""
        return [self.UPDATE_US] * repeats
