"""One workflow with branches under construction: stages, decisions, and what the other options would have run.

What a stage would return is fixed here by what it is given: stages with equal templates, contents and inputs draw equal
lengths and times and have outputs of one identity, in whatever workflow they stand, canonical or not. Canonical
stages come first, the paths that were not taken after them, so that a range of canonical stages can be a subgraph.
Options keep the order in which they are given, whichever was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from traces._text import Text, add_call
from traces.branch_builder import BranchBuilder
from traces.builder import WorkloadBuilder
from traces.clocks import Clock
from traces.identity import identity, joined
from traces.schema import StageKind

Part = tuple[int, int]  # identity and tokens of a piece of text
MS = 1_000_000


@dataclass
class Choice:
    """An option: what is chosen, with which arguments; `then` makes its path when it was not taken."""

    outcome: int
    arguments: int
    scores: Mapping[str, float]
    path: list[int] = field(default_factory=list)
    taken: bool = False
    then: Callable[[Choice], None] | None = None
    stage: int = -1

    @property
    def key(self) -> int:
        """Number of the choice and its arguments."""
        return joined(self.outcome, self.arguments)


@dataclass
class Decision:
    """A branch: the stage that resolves it, and its options in the template's order."""

    stage: int
    coordinate: int
    setup_ns: int
    open_space: bool
    exclusive: bool
    options: list[Choice] = field(default_factory=list)

    def option(
        self,
        outcome: int,
        *,
        arguments: int = 0,
        scores: Mapping[str, float] | None = None,
        taken: bool = False,
        then: Callable[[Choice], None] | None = None,
    ) -> Choice:
        """Add an option and return it; stages made with `after=` it are its path. Mutates."""
        made = Choice(outcome, arguments, scores or {}, taken=taken, then=then, stage=self.stage)
        self.options.append(made)
        return made


class Flow:
    """Adds one workflow to a builder. Every method but `text` and `output` mutates; call `end` last."""

    def __init__(
        self, builder: WorkloadBuilder, branches: BranchBuilder, clock: Clock, seed: int, key: int
    ) -> None:
        """key: number of the workflow; what is not determined by its input is its own."""
        self.clock = clock
        self.seed = seed
        self._key = key
        self._builder = builder
        self._branches = branches
        self._static: dict[int, int] = {}
        self._template: dict[int, int] = {}
        self._given: dict[int, list[int]] = {}
        self._output: dict[int, Part] = {}
        self._decisions: list[Decision] = []

    def text(self, agent: str) -> Text:
        """Return the system prompt of an agent, the same in every workflow; does not mutate."""
        return Text([(identity("system", self._builder.name, agent), self.clock.fixed("system_tokens"))])

    def output(self, stage: int) -> Part:
        """Return what an LLM stage wrote, as a part of later prompts; does not mutate."""
        return self._output[stage]

    def llm(
        self,
        agent: str,
        prompt: Text,
        content: int,
        *,
        tokens: int | str,
        parents: Sequence[int] = (),
        after: Choice | None = None,
        on: Choice | None = None,
        speculable: bool = True,
        reads: Iterable[int] = (),
    ) -> int:
        """Add an LLM call. tokens: its output, or a quantity of the clock to draw it from.

        content: identity of what its prompt says beyond its template and what the parents returned. after: the option
        that releases it; the call sees the choice, not what the deciding stage wrote. on: the option whose path it is
        on when that does not release it.
        """
        static = self._static_of(agent, content, parents, after, speculable)
        length = tokens if isinstance(tokens, int) else max(1, self.clock.draw(tokens, self.seed, static))
        part = (static, length)
        given = self._parents(parents, after)
        stage = add_call(self._builder, agent, prompt, part, given)
        self._output[stage], self._given[stage] = part, given
        return self._note(stage, agent, content, static, after or on, speculable, False, reads, ())

    def delay(
        self,
        agent: str,
        content: int,
        *,
        duration_ns: int | str,
        kind: StageKind = StageKind.TOOL,
        parents: Sequence[int] = (),
        after: Choice | None = None,
        on: Choice | None = None,
        speculable: bool = True,
        mutating: bool = False,
        reads: Iterable[int] = (),
        writes: Iterable[int] = (),
    ) -> int:
        """Add a tool call or a wait. duration_ns: its time, or a quantity of the clock in ms to draw it from."""
        speculable = speculable and not mutating
        static = self._static_of(agent, content, parents, after, speculable)
        if isinstance(duration_ns, str):
            duration_ns = self.clock.draw(duration_ns, self.seed, static) * MS
        given = self._parents(parents, after)
        stage = self._builder.delay(kind, duration_ns, parents=given, agent=agent)
        self._given[stage] = given
        return self._note(stage, agent, content, static, after or on, speculable, mutating, reads, writes)

    def decide(
        self, stage: int, template: str, place: int = 0, *, open_space: bool = False, exclusive: bool = True
    ) -> Decision:
        """Add a branch that `stage` resolves; drafting takes `drafting_ms` of the clock."""
        made = Decision(
            stage,
            identity("coordinate", self._builder.name, template, place),
            self.clock.fixed("drafting_ms") * MS,
            open_space,
            exclusive,
        )
        self._decisions.append(made)
        return made

    def subgraph(self, first: int, last: int) -> None:
        """Make stages `first` to `last` a unit; its template is those of its stages and how they hang together."""
        inside = range(first, last + 1)
        shape = [
            joined(self._template[s], *(s - p if p in inside else 0 for p in self._given[s])) for s in inside
        ]
        self._branches.subgraph(first, last, fingerprint=joined(identity("subgraph"), *shape))

    def whole(self) -> None:
        """Make all stages so far a unit."""
        self.subgraph(min(self._static), max(self._static))

    def end(self) -> None:
        """Add the paths that were not taken, and hand the branches to the builder."""
        for decision in self._decisions:  # grows while options below options are made
            for option in decision.options:
                if not option.taken and option.then is not None:
                    option.then(option)
        for decision in self._decisions:
            branch = self._branches.branch(
                decision.stage,
                coordinate=decision.coordinate,
                open_space=decision.open_space,
                exclusive=decision.exclusive,
                setup_ns=decision.setup_ns,
            )
            for option in decision.options:
                self._branches.option(
                    branch,
                    outcome=option.outcome,
                    arguments=option.arguments,
                    chosen=option.taken,
                    stages=option.path,
                    scores=option.scores,
                )

    def _static_of(
        self, agent: str, content: int, parents: Sequence[int], after: Choice | None, determined: bool
    ) -> int:
        given = [self._static[p] for p in parents]
        choice = 0 if after is None else after.key
        own = () if determined else (self._key, len(self._static))
        return joined(identity("stage", self._builder.name, agent), content, choice, *given, *own)

    def _parents(self, parents: Sequence[int], after: Choice | None) -> list[int]:
        return [*parents] if after is None else [after.stage, *parents]

    def _note(
        self,
        stage: int,
        agent: str,
        content: int,
        static: int,
        path: Choice | None,
        speculable: bool,
        mutating: bool,
        reads: Iterable[int],
        writes: Iterable[int],
    ) -> int:
        self._static[stage] = static
        self._template[stage] = identity("template", self._builder.name, agent)
        if path is not None:
            path.path.append(stage)
        self._branches.stage(
            stage,
            fingerprint=self._template[stage],
            content=content,
            speculable=speculable,
            mutating=mutating,
            reads=tuple(sorted(set(reads))),
            writes=tuple(sorted(set(writes))),
        )
        return stage
