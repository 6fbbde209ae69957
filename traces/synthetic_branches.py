"""Random workflows with branches, for tests that look for a law's exceptions. Seeded; no claim to resemble agents.

They hold what the rules of reuse and early execution must get right: nested branches, one winner or several, wrong
arguments, options that no drafter can name, stages that write, reads of what others write, writes from outside,
stages that are not determined by their input, whole repeats, and repeats with one changed input.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from traces import draws
from traces.branch_flow import MS, Choice, Decision, Flow
from traces.builder import WorkloadBuilder
from traces.clocks import Clock
from traces.errors import InputError
from traces.identity import joined
from traces.schema import StageKind, Workload

DRAFTERS = ("frequent", "similar")
_AGENTS = ("plan", "find", "read", "check", "tell")


@dataclass(frozen=True)
class Shape:
    """What the workflows are like. Chances are per mille.

    length           most stages between two decisions
    depth            most decisions inside each other's options
    options          most options a decision has
    contents         different inputs a template gets: fewer, more recurrence
    resources        keys that stages of all workflows read and write; 0 for none
    decides          a stage resolves a branch
    several          a branch has several valid outcomes
    tool, wait       a stage is a tool call, a wait (else an LLM call)
    reads, writes    a stage reads a resource; a tool call writes one
    undetermined     a stage is not speculable
    unnamed          a drafter cannot name an option
    repeats          a workflow repeats an earlier one
    changed          a repeat has one changed input
    outside          a workflow comes with a write from outside
    """

    length: int = 3
    depth: int = 2
    options: int = 3
    contents: int = 3
    resources: int = 6
    decides: int = 350
    several: int = 200
    tool: int = 300
    wait: int = 50
    reads: int = 400
    writes: int = 250
    undetermined: int = 80
    unnamed: int = 250
    repeats: int = 350
    changed: int = 400
    outside: int = 300


def random_branches(workflows: int, seed: int, shape: Shape | None = None) -> Workload:
    """Return `workflows` random workflows; equal arguments give equal workloads. Raises InputError for bad sizes.

    >>> random_branches(20, seed=1).errors()
    []
    """
    shape = shape or Shape()
    if workflows < 1 or min(shape.length, shape.options, shape.contents) < 1:
        raise InputError("random_branches: workflows, length, options and contents must be at least 1")
    builder = WorkloadBuilder("random_branches", 16)
    branches = builder.with_branches(DRAFTERS)
    clock = Clock(
        "random",
        "",
        {
            "system_tokens": ((0, 32), (1000, 32)),
            "drafting_ms": ((0, 3), (1000, 3)),
            "output": ((0, 1), (1000, 40)),
            "tool": ((0, 0), (1000, 900)),
        },
        {},
    )
    for i in range(workflows):
        builder.workflow(f"random-{i}")
        origin, changed = i, -1
        if i and _chance(seed, shape.repeats, "repeats", i):
            origin = draws.bits(seed, "branches/origin", i) % i
            if _chance(seed, shape.changed, "changed", i):
                changed = draws.bits(seed, "branches/changed at", i) % 4
        flow = Flow(builder, branches, clock, seed, joined(seed, i))
        _Random(flow, shape, seed, origin, changed, i).grow()
        if shape.resources and _chance(seed, shape.outside, "outside", i):
            key = 1 + draws.bits(seed, "branches/outside key", i) % shape.resources
            branches.external_write(key, draws.bits(seed, "branches/outside at", i) % 4000 * MS, workflow=i)
    said = {"source": "generated", "format": "random_branches", "seed": seed, "shape": asdict(shape)}
    return builder.build(said)


def _chance(seed: int, per_mille: int, purpose: str, *ids: int) -> bool:
    return draws.bits(seed, f"branches/{purpose}", *ids) % 1000 < per_mille


class _Random:
    """One workflow. All of its draws depend on `origin`: a repeat meets the same ones, but for the changed input."""

    def __init__(self, flow: Flow, shape: Shape, seed: int, origin: int, changed: int, own: int) -> None:
        self._flow = flow
        self._shape = shape
        self._seed = seed
        self._origin = origin
        self._changed = changed
        self._own = own
        self._count = 0
        self._llm: set[int] = set()

    def grow(self) -> None:
        """Add the workflow. Mutates the flow."""
        stages, _ = self._path([], None, None, 0, self._length(self._shape.length + 1, 0))
        self._graphs(stages[0], stages[-1])
        self._flow.end()

    def _draw(self, purpose: str, *ids: int) -> int:
        return draws.bits(self._seed, f"branches/{purpose}", self._origin, self._count, *ids)

    def _is(self, per_mille: int, purpose: str, *ids: int) -> bool:
        return self._draw(purpose, *ids) % 1000 < per_mille

    def _length(self, most: int, place: int) -> int:
        return 1 + self._draw("length", place) % most

    def _path(
        self, visible: list[int], after: Choice | None, on: Choice | None, level: int, length: int
    ) -> tuple[list[int], Choice | None]:
        """Add `length` stages and what they decide; return those that later stages may depend on, and the option
        that these are on. A path below an option ends where it decides for nothing."""
        mine: list[int] = []
        for _ in range(length):
            stage = self._stage(visible + mine, after, on, mine)
            mine.append(stage)
            after, on = None, on or after
            if level < self._shape.depth and self._is(self._shape.decides, "decides"):
                decision = self._decide(stage)
                first, seen = self._options(decision, visible + mine, level)
                mine += seen
                if on is not None:  # below an option, what follows is on the path of the one chosen here
                    on = first
                    if first is None:
                        break
        return mine, on

    def _stage(self, seen: list[int], after: Choice | None, on: Choice | None, mine: list[int]) -> int:
        self._count += 1
        shape, draw = self._shape, self._draw
        agent = _AGENTS[draw("agent") % len(_AGENTS)]
        content = joined(draw("content") % shape.contents)
        if self._changed == self._count - 1:
            content = joined(content, self._own)
        parents = sorted(
            {seen[draw("parent", k) % len(seen)] for k in range(draw("parents") % 3)} if seen else ()
        )
        if after is None and mine and mine[-1] not in parents:
            parents.append(mine[-1])
        if after is not None:
            parents = [p for p in parents if p != after.stage]
        # What a stage reads is determined by what it is asked: equal inputs read equal resources.
        asked = (_AGENTS.index(agent), content)
        key = 1 + draws.bits(self._seed, "branches/resource", *asked) % max(shape.resources, 1)
        read = draws.bits(self._seed, "branches/reads", *asked) % 1000 < shape.reads
        reads = [key] if shape.resources and read else []
        speculable = not self._is(shape.undetermined, "undetermined")
        kind = draw("kind") % 1000
        if kind >= shape.tool + shape.wait:
            prompt = self._flow.text(agent).with_((content, 8 + draw("prompt") % 200))
            prompt = prompt.with_(*(self._flow.output(p) for p in parents if p in self._llm))
            made = self._flow.llm(
                agent, prompt, content, tokens="output", parents=parents, after=after, on=on,
                speculable=speculable, reads=reads,
            )  # fmt: skip
            self._llm.add(made)
            return made
        wait = kind < shape.wait
        writes = [key] if shape.resources and not wait and self._is(shape.writes, "writes") else []
        return self._flow.delay(
            agent, content, duration_ns="tool", kind=StageKind.WAIT if wait else StageKind.TOOL, parents=parents,
            after=after, on=on, speculable=speculable and not wait, mutating=bool(writes), reads=reads, writes=writes,
        )  # fmt: skip

    def _decide(self, stage: int) -> Decision:
        several = self._is(self._shape.several, "several")
        return self._flow.decide(
            stage,
            _AGENTS[self._draw("agent") % len(_AGENTS)],
            open_space=self._is(500, "open"),
            exclusive=not several,
        )

    def _options(self, decision: Decision, visible: list[int], level: int) -> tuple[Choice | None, list[int]]:
        """Add the options; return the option that what follows is on, and the stages that it may depend on."""
        count = 1 + self._draw("options") % self._shape.options
        winner = self._draw("winner") % (count + 1)  # the last place: something no option stands for
        decided = self._count
        first: Choice | None = None
        seen: list[int] = []
        for k in range(count):
            outcome = k if self._draw("wrong arguments", k) % 4 else max(k - 1, 0)
            taken = k == winner or (not decision.exclusive and self._is(400, "also", k))
            length = draws.bits(self._seed, "branches/path", self._origin, decided, k) % (
                self._shape.length + 1
            )
            scores = {
                d: self._draw(f"score/{d}", k) % 1000 / 1000
                for d in DRAFTERS
                if not self._is(self._shape.unnamed, f"unnamed/{d}", k)
            }

            def then(choice: Choice, length: int = length, known: tuple[int, ...] = tuple(visible)) -> None:
                self._path(list(known), choice, choice, level + 1, length)

            option = decision.option(
                outcome,
                arguments=joined(decided, k),
                scores=scores,
                taken=taken,
                then=None if taken else then,
            )
            if taken:
                path, end = self._path(visible, option, option, level + 1, length)
                if level == 0:
                    seen = seen + path
                elif not any(o.taken for o in decision.options[:-1]):
                    first, seen = end, path
        return first, seen

    def _graphs(self, first: int, last: int) -> None:
        """Name the whole, and parts inside each other."""
        while first <= last:
            self._flow.subgraph(first, last)
            span = last - first + 1
            if span < 3:
                return
            first, last = first + self._draw("first", first) % 2, last - 1 - self._draw("last", last) % 2
