"""The workflow of an orchestrator that hands MuSiQue's sub-topics to sub-agents.

The orchestrator plans: its plan names all sub-topics at once, one a supporting article. A sub-agent searches its topic,
reads what it finds and reports; it is given nothing but the topic, so that its work is the same in every workflow that
asks for it. A last agent answers from the reports. The branch has several valid outcomes, and what was not chosen is
no loser that excludes them: the candidates are names in the question, and titles that a retriever finds for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from traces._musique_records import Name, Question
from traces.branch_flow import Choice, Flow
from traces.identity import identity, joined

DRAFTERS = ("entity", "retrieval")
QUANTITIES = (
    "system_tokens", "plan_tokens", "report_tokens", "answer_tokens", "passage_tokens", "search_ms", "drafting_ms",
)  # fmt: skip


@dataclass(frozen=True)
class SubAgents:
    """Makes workflows. passage_tokens: of what a search for a topic finds, where the data say; else drawn.

    most_options: candidates of each drafter that the branch has options for, beside the chosen ones."""

    passage_tokens: dict[int, int]
    most_options: int = 8

    def add(self, flow: Flow, question: Question) -> None:
        """Add the question's workflow. Mutates `flow`."""
        asked = (question.key, question.tokens)
        plan = flow.llm(
            "orchestrator", flow.text("orchestrator").with_(asked), question.key, tokens="plan_tokens"
        )
        decision = flow.decide(plan, "plan", open_space=True, exclusive=False)
        topics = {h.title.key: h.title for h in question.hops}
        scores: dict[int, dict[str, float]] = {}
        named: dict[int, Name] = {}
        for drafter, names in (("entity", question.asked), ("retrieval", question.retrieved)):
            for rank, name in enumerate(names[: self.most_options]):
                named.setdefault(name.key, name)
                scores.setdefault(name.key, {})[drafter] = round(1 / (1 + rank), 4)
        reports: list[int] = []

        def lose(choice: Choice) -> None:
            self._send(flow, every[choice.outcome], choice)

        every = named | {k: t for k, t in topics.items() if k not in named}
        # Topics that no drafter names stand where the order of all keys puts them: the order tells nothing.
        for key in sorted(every, key=lambda k: (k not in named, k)):
            taken = key in topics
            choice = decision.option(
                key,
                arguments=key,
                scores=scores.get(key),
                taken=taken,
                then=None if taken else lose,
            )
            if taken:
                report = self._send(flow, topics[key], choice)
                flow.subgraph(report - 1, report)
                reports.append(report)
        prompt = flow.text("writer").with_(asked, *(flow.output(r) for r in reports))
        flow.llm("writer", prompt, question.key, tokens="answer_tokens", parents=tuple(reports))
        flow.whole()
        flow.end()

    def _send(self, flow: Flow, topic: Name, choice: Choice) -> int:
        """Add a sub-agent's work on a topic; return its report."""
        article = identity("article", topic.key)
        search = flow.delay("search", topic.key, duration_ns="search_ms", after=choice, reads=(article,))
        found = self.passage_tokens.get(topic.key) or flow.clock.draw("passage_tokens", flow.seed, topic.key)
        prompt = flow.text("researcher").with_((topic.key, topic.tokens), (joined(article), max(1, found)))
        return flow.llm("researcher", prompt, topic.key, tokens="report_tokens", parents=(search,), on=choice)


def passage_tokens(questions: list[Question]) -> dict[int, int]:
    """Return tokens of the article's paragraph that a search for a topic finds, of the first hop that has one."""
    out: dict[int, int] = {}
    for question in questions:
        for hop in question.hops:
            if hop.passage_tokens:
                out.setdefault(hop.title.key, hop.passage_tokens)
    return out
