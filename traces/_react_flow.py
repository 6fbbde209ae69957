"""The ReAct workflow that a MuSiQue question is turned into: think > search an entity > think ... > answer.

A thought ends in the name of an entity to look up, or in the answer. A prompt holds the question and, for each search,
what was looked up and what was found; earlier thoughts are not sent again (as chat templates of reasoning models do),
so that what a search finds is all that the next thought needs. The path of an option is the search and the
thought after it, where the next decision is nested.
"""

from __future__ import annotations

from dataclasses import dataclass

from traces._musique_records import Name, Question
from traces._text import Text
from traces.branch_flow import Choice, Decision, Flow, Part
from traces.identity import identity, joined

DRAFTERS = ("entity",)
QUANTITIES = ("system_tokens", "thought_tokens", "passage_tokens", "search_ms", "drafting_ms")
_ANSWER = identity("react", "answer")
_COMMAND_TOKENS = 3  # around the name in an action


@dataclass(frozen=True)
class React:
    """Makes workflows. passage_tokens: of what a search for an entity finds, where the data say; else drawn.

    most_options: names that a decision has options for, beside the chosen one."""

    passage_tokens: dict[int, int]
    most_options: int = 8

    def add(self, flow: Flow, question: Question) -> None:
        """Add the question's workflow. Mutates `flow`."""
        text = flow.text("thinker").with_((question.key, question.tokens))
        found: list[int] = []
        thought = flow.llm("thinker", text, question.key, tokens="thought_tokens")
        looked_up: set[int] = set()
        for k, hop in enumerate(question.hops):
            decision = flow.decide(thought, "thought", min(k, 3), open_space=True)
            choice = self._options(decision, flow, question, k, hop.entity, looked_up, text, tuple(found))
            looked_up.add(hop.entity.key)
            search, part = self._search(flow, hop.entity, choice)
            found.append(search)
            text = text.with_((hop.entity.key, hop.entity.tokens + _COMMAND_TOKENS), part)
            thought = flow.llm(
                "thinker", text, question.key, tokens="thought_tokens", parents=tuple(found), on=choice
            )
        last = len(question.hops)
        decision = flow.decide(thought, "thought", min(last, 3), open_space=True)
        self._options(decision, flow, question, last, None, looked_up, text, tuple(found))
        decision.option(_ANSWER, taken=True)
        flow.whole()
        flow.end()

    def _options(
        self,
        decision: Decision,
        flow: Flow,
        question: Question,
        place: int,
        chosen: Name | None,
        looked_up: set[int],
        text: Text,
        found: tuple[int, ...],
    ) -> Choice | None:
        """Add the names a drafter ranks, and the chosen one; return its option (None: the answer comes next)."""
        passage = (question.passages[place - 1] or ()) if place else ()
        ranked = {n.key: n for n in (*passage, *question.asked) if n.key not in looked_up}
        names = list(ranked.values())[: self.most_options]
        taken: Choice | None = None

        def lose(choice: Choice) -> None:
            name = ranked[choice.outcome]
            search, part = self._search(flow, name, choice)
            flow.llm(
                "thinker",
                text.with_((name.key, name.tokens + _COMMAND_TOKENS), part),
                question.key,
                tokens="thought_tokens",
                parents=(*found, search),
                on=choice,
            )

        for rank, name in enumerate(names):
            scores = {"entity": round(1 / (1 + rank), 4)}  # only the order means something
            if chosen is not None and name.key == chosen.key:
                taken = decision.option(name.key, arguments=name.key, scores=scores, taken=True)
            else:
                decision.option(name.key, arguments=name.key, scores=scores, then=lose)
        if chosen is not None and taken is None:
            taken = decision.option(chosen.key, arguments=chosen.key, taken=True)
        return taken

    def _search(self, flow: Flow, name: Name, choice: Choice | None) -> tuple[int, Part]:
        """Add the search for a name; return it and what it finds, which depends on nothing but the name."""
        article = identity("article", name.key)
        search = flow.delay("search", name.key, duration_ns="search_ms", after=choice, reads=(article,))
        tokens = self.passage_tokens.get(name.key) or flow.clock.draw("passage_tokens", flow.seed, name.key)
        return search, (joined(article), max(1, tokens))


def passage_tokens(questions: list[Question]) -> dict[int, int]:
    """Return tokens of the paragraph that a search finds: of the first question whose hop looks the name up."""
    out: dict[int, int] = {}
    for question in questions:
        for hop in question.hops:
            if hop.passage_tokens:
                out.setdefault(hop.entity.key, hop.passage_tokens)
    return out
