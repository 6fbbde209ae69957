"""The routing workflow that a BFCL record is turned into.

A router reads the functions on offer and the question and names a call; a handler prepares it (it reads that function's
description and the question), and it is executed. Where one call answers, or several that do not wait for each other,
a last agent replies; in turns of calls the router is asked again after each result until it replies itself. Prompts
share their system prompt and, in the router's, the descriptions of the functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from traces._bfcl_records import MANY, TURNS, Call, Function, Task, Turn
from traces.branch_flow import Choice, Decision, Flow, Part
from traces.clocks import Clock
from traces.identity import identity, joined
from traces.tfidf import TfIdf

DRAFTERS = ("retrieval",)
QUANTITIES = (
    "system_tokens", "reason_tokens", "handler_reason_tokens", "call_tokens", "execute_ms", "result_tokens",
    "reply_tokens", "drafting_ms",
)  # fmt: skip
_REPLY = identity("routing", "reply")


@dataclass(frozen=True)
class Recipe:
    """How records become workflows. `router_arguments`: the router writes the arguments, too, and a candidate has to
    guess them; else the handler does, and a candidate is a function. `most_options`: best-scored functions that a
    decision has options for, beside the chosen one."""

    router_arguments: bool = True
    most_options: int = 8


@dataclass
class Routing:
    """One workflow under construction. Mutated by `add`."""

    flow: Flow
    task: Task
    recipe: Recipe
    weights: TfIdf
    asked: list[int] = field(default_factory=list)  # identities of the questions so far
    said: list[Part] = field(default_factory=list)  # the conversation after system prompt and functions
    known: list[int] = field(default_factory=list)  # stages whose results the conversation holds

    def add(self) -> None:
        """Add the task's workflow."""
        for turn in self.task.turns:
            self.asked.append(turn.key)
            self.said.append((turn.key, turn.tokens))
            if self.task.group in TURNS:
                self._one_by_one(turn)
            else:
                self._at_once(turn)
        self.flow.whole()
        self.flow.end()

    def _one_by_one(self, turn: Turn) -> None:
        for k, call in enumerate(turn.calls):
            decision = self._route(turn, [call], k)
            self._options(decision, turn, turn.calls[:k], [call])
            decision.option(_REPLY)
        decision = self._route(turn, [], len(turn.calls))
        self._options(decision, turn, turn.calls, [])
        decision.option(_REPLY, taken=True)
        self.said.append(self.flow.output(decision.stage))
        self.known.append(decision.stage)

    def _at_once(self, turn: Turn) -> None:
        decision = self._route(turn, turn.calls, 0)
        self._options(decision, turn, (), turn.calls)
        prompt = self.flow.text("reply").with_(*self.said)
        self.known.append(
            self.flow.llm(
                "reply", prompt, joined(*self.asked), tokens="reply_tokens", parents=tuple(self.known)
            )
        )

    def _route(self, turn: Turn, calls: Sequence[Call], place: int) -> Decision:
        offered = [(f.key, f.tokens) for f in self.task.functions]
        content = joined(*(key for key, _ in offered), *self.asked)
        flow, clock = self.flow, self.flow.clock
        about = (flow.seed, content, place)
        if calls:
            written = sum(self._written(c) for c in calls)
            tokens = max(1, clock.draw("reason_tokens", *about)) + written
        else:
            tokens = max(1, clock.draw("reply_tokens", *about))
        prompt = flow.text("router").with_(*offered, *self.said)
        stage = flow.llm("router", prompt, content, tokens=tokens, parents=tuple(self.known))
        several = self.task.group in MANY
        return flow.decide(stage, "several" if several else "call", min(place, 5), exclusive=not several)

    def _written(self, call: Call) -> int:
        """Return the tokens of a call as the router writes it."""
        return call.tokens if self.recipe.router_arguments else 8

    def _options(self, decision: Decision, turn: Turn, done: Sequence[Call], chosen: Sequence[Call]) -> None:
        functions = self.task.functions
        score = [self.weights.score(turn.words, f.words) for f in functions]
        best = sorted(range(len(functions)), key=lambda j: (-score[j], j))[: self.recipe.most_options]
        called = {c.function for c in done}  # a retriever offers a function once a turn
        known, said = tuple(self.known), tuple(self.said)
        copied = joined(*self.asked)

        def lose(choice: Choice) -> None:
            function = next(f for f in functions if f.key == choice.outcome)
            tokens = self.flow.clock.draw("call_tokens", self.flow.seed, choice.key, copied)
            self._handle(function, tokens, choice, known, said)

        for j, function in enumerate(functions):
            named = {"retrieval": score[j]} if j in best and j not in called else {}
            right = [c for c in chosen if c.function == j]
            guess = identity("copied", function.key, copied) if self.recipe.router_arguments else 0
            if named and not any(self._guessed(c) for c in right):
                decision.option(function.key, arguments=guess, scores=named, then=lose)
            for call in right:
                arguments = call.arguments if self.recipe.router_arguments else 0
                scores = named if self._guessed(call) else {}
                choice = decision.option(function.key, arguments=arguments, scores=scores, taken=True)
                stage, part = self._handle(function, call.tokens, choice, known, said)
                self.known.append(stage)
                self.said.append(part)

    def _guessed(self, call: Call) -> bool:
        """Say whether a drafter that names the function has the call's arguments right by copying."""
        return call.copied or not self.recipe.router_arguments

    def _handle(
        self, function: Function, call_tokens: int, choice: Choice, known: Sequence[int], said: Sequence[Part]
    ) -> tuple[int, Part]:
        """Add handler and execution of a call; return the execution and its result as text."""
        flow = self.flow
        about = joined(function.key, *self.asked)
        prompt = flow.text("handler").with_((function.key, function.tokens), *said)
        thought = max(1, flow.clock.draw("handler_reason_tokens", flow.seed, about, choice.key))
        handler = flow.llm(
            "handler", prompt, about, tokens=thought + call_tokens, parents=tuple(known), after=choice
        )
        state = [identity("state", self.task.name, function.owner) if function.owner else function.key]
        execution = flow.delay(
            "function", joined(function.key, choice.arguments), duration_ns="execute_ms", parents=(handler,),
            on=choice, speculable=function.reads, mutating=function.writes,
            reads=state, writes=state if function.writes else (),
        )  # fmt: skip
        if choice.taken:
            flow.subgraph(handler, execution)
        size = max(1, flow.clock.draw("result_tokens", flow.seed, choice.key, about))
        return execution, (identity("result", choice.key, about), size)


def said(clock: Clock, recipe: Recipe) -> dict[str, str]:
    """Return what a provenance says is ours."""
    return {
        "workflow": "router > handler > function > (reply, or the router again until it replies)",
        "arguments": "named by the router" if recipe.router_arguments else "found by the handler",
        "safe to run": "functions whose name or description begins with a verb that reads",
        "options": f"the {recipe.most_options} functions scored best, and the chosen one",
        "turns": "follow without a pause",
    }
