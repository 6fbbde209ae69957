"""Runs decode steps through the graphs that a bucketing policy chooses: the policy object is the simulator's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

from kernels.graphs.work import Ints, StepWork
from kernels.program import Program
from kernels.shapes import Bounds
from kernels.step import DecodeStep
from policies.api import Bucketer, GraphChoice, HostInfo
from traces.errors import InputError


class Graph(Protocol):
    """A captured graph."""

    bytes: int

    def replay(self) -> None:
        """Launch it."""
        ...


class Recorder(Protocol):
    """Captures launches."""

    def capture(self, enqueue: Callable[[], None]) -> Graph:
        """Return the graph of what `enqueue` launches."""
        ...


@dataclass(frozen=True)
class Built:
    """One capture: the policy's key, the grid's rows, what it took, and whether serving waited for it."""

    key: int
    rows: int
    seconds: float
    bytes: int
    serving: bool


@dataclass
class Account:
    """Captures so far; steps that replayed a graph, and steps launched kernel by kernel."""

    built: list[Built] = field(default_factory=list)
    replayed: int = 0
    eager: int = 0

    @property
    def misses(self) -> int:
        """Captures on the serving path."""
        return sum(b.serving for b in self.built)


class Replayer:
    """One step's graphs under one policy. `run` mutates the step's buffers and cache, the policy's state, `account`.

    A policy that pads (all_shapes, on_demand, max_pad) has its rectangle marked active as a whole; one with plan
    buffers has the plan say what is active, within a larger grid; eager launches a program of the step's own bounds.
    Graphs of one width that a policy keeps apart by context share the context bound, so that the key alone differs.
    """

    def __init__(
        self,
        step: DecodeStep,
        bucketer: Bucketer[Any],
        host: HostInfo,
        recorder: Recorder,
    ) -> None:
        bounds = step.config.bounds
        if host.max_num_seqs > bounds.batch:
            raise InputError(f"replayer: max_num_seqs {host.max_num_seqs}; allowed: up to {bounds.batch}")
        self.step = step
        self.account = Account()
        self._bucketer = bucketer
        self._state = bucketer.new_state(host)
        self._recorder = recorder
        self._graphs: dict[int, tuple[Graph, Program]] = {}
        self._programs: dict[Bounds, Program] = {}
        self._widths = bucketer.plan(host)
        for width in self._widths:
            self._capture(width, width, serving=False)

    def run(self, work: StepWork) -> list[Ints]:
        """Return the argmax after every new token, sequence by sequence.

        Raises InputError for a step beyond the bounds (`DecodeStep.load`), before anything is launched.
        """
        shape = work.shape()
        choice = self._bucketer.pick(self._state, self._widths, shape)
        width = self._load(work, choice)
        self.launch(choice)
        plan_rows = shape.tokens if width is None else shape.decode_seqs * width
        results = self.step.buffers["next_tokens"][:plan_rows].cpu().numpy()
        return work.split(results, width)

    def choose(self, work: StepWork) -> GraphChoice:
        """Load a step and return the choice for `launch`, so that a benchmark can repeat the launch alone."""
        choice = self._bucketer.pick(self._state, self._widths, work.shape())
        self._load(work, choice)
        return choice

    def launch(self, choice: GraphChoice) -> None:
        """Replay the chosen graph, capturing it first where it is new, or launch the step's own program."""
        if choice.key is None:
            self.account.eager += 1
            self._eager_program.launch()
            return
        if choice.key not in self._graphs:
            self._capture(choice.key, choice.executed, serving=True)
        self.account.replayed += 1
        self._graphs[choice.key][0].replay()

    def _load(self, work: StepWork, choice: GraphChoice) -> int | None:
        """Write plan and inputs; return the rectangle's width, None for a ragged plan."""
        config, shape = self.step.config, work.shape()
        width: int | None
        if config.ragged:
            width = None
            plan, tokens = work.ragged(config.shape)
        else:
            width = max(work.widths)
            if choice.key is not None and not choice.plan_update:
                width = -(-choice.active // shape.decode_seqs)
                if width * shape.decode_seqs != choice.active:
                    raise InputError(
                        f"replayer: {choice.active} rows for {shape.decode_seqs} sequences are no rectangle: this "
                        "policy pads with sequences of its own, which only a serving engine has"
                    )
            plan, tokens = work.rectangle(config.shape, width)
        self.step.load(plan, tokens, work.contexts, work.tables)
        if choice.key is None:
            bounds = Bounds(plan.batch, plan.draft, config.bounds.context, rows=plan.rows)
            if bounds not in self._programs:
                self._programs[bounds] = self.step.program(bounds)
            self._eager_program = self._programs[bounds]
        return width

    def _capture(self, key: int, rows: int, *, serving: bool) -> None:
        bounds = self.step.config.bounds
        captured = Bounds(min(bounds.batch, rows), min(bounds.draft, rows), bounds.context, rows=rows)
        started = perf_counter()
        program = self.step.program(captured)
        graph = self._recorder.capture(program.launch)
        # The program is kept: it holds the compiled kernels that the graph points to.
        self._graphs[key] = (graph, program)
        self.account.built.append(Built(key, rows, perf_counter() - started, graph.bytes, serving))
