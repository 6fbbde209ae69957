"""The workflow of an assistant that offers something and waits for the user, from a chain of SGD.

[search >] offer > wait > (details > reply | search > reply | reply) > wait > ... Its branch is decided by the user: the
window is the wait. On the path of a pick the item's details are fetched and a reply is written; on that of a wish for
something else a search runs first; a question and anything else only need a reply. Which stages an option has depends
on the template alone. What a model writes is drawn from the clock, or as long as the recorded utterance (`recorded`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from traces._sgd_records import ALTERNATIVES, DETAILS, OTHER, SELECT, Chain, Round
from traces.branch_flow import MS, Choice, Flow, Part
from traces.identity import identity, joined
from traces.schema import StageKind

QUANTITIES = (
    "system_tokens", "details_ms", "search_ms", "reply_tokens", "read_ms_per_word", "decide_ms", "act_ms",
    "pace_per_mille", "drafting_ms",
)  # fmt: skip

_EVENT_TOKENS = 12  # of what the user did, as the conversation holds it


def outcome(act: str, place: int = 0) -> int:
    """Return the number of a choice: the act, for picks with the place of the item on the menu."""
    return identity("hci", act, place)


@dataclass
class Hci:
    """One workflow under construction. Mutated by `add`."""

    flow: Flow
    chain: Chain
    recorded: bool = False
    said: list[Part] = field(default_factory=list)

    def add(self) -> None:
        """Add the chain's workflow."""
        flow, chain = self.flow, self.chain
        self.said = [(s.key, s.tokens) for s in chain.history]
        before: tuple[int, ...] = ()
        if chain.call:
            before = (flow.delay("search", chain.call, duration_ns="search_ms", reads=(chain.call,)),)
        last = self._say(before, chain.offer.tokens)
        for k, turn in enumerate(chain.rounds):
            last = self._wait(last, turn, k)
        flow.whole()
        flow.end()

    def _wait(self, last: int, turn: Round, place: int) -> int:
        """Add a wait, its branch and the path that was taken; return the reply that ends it."""
        flow, clock = self.flow, self.flow.clock
        kind = "menu" if len(turn.items) > 1 else "single"
        about = joined(*(key for key, _ in self.said))
        model_ms = (
            turn.shown.words * clock.fixed("read_ms_per_word")
            + clock.fixed("decide_ms")
            + clock.fixed("act_ms")
        )
        pace = clock.draw("pace_per_mille", flow.seed, about, place)
        wait = flow.delay(
            "user",
            joined(about, place),
            duration_ns=model_ms * pace // 1000 * MS,
            kind=StageKind.WAIT,
            parents=(last,),
            speculable=False,
        )
        decision = flow.decide(wait, kind, min(place, 3))
        before = tuple(self.said)
        reply = wait

        def lose(choice: Choice) -> None:
            self._path(choice, acts[choice.outcome], before, 0)

        options = [(SELECT, i, item) for i, item in enumerate(turn.items)]
        options += [(act, 0, 0) for act in (ALTERNATIVES, DETAILS, OTHER)]
        acts = {outcome(act, i): act for act, i, _ in options}
        for act, i, item in options:
            taken = act == turn.act and (act != SELECT or i == turn.picked)
            choice = decision.option(
                outcome(act, i), arguments=item, taken=taken, then=None if taken else lose
            )
            if taken:
                reply = self._path(choice, act, before, turn.reply.tokens if turn.reply else 0)
        return reply

    def _path(self, choice: Choice, act: str, before: tuple[Part, ...], tokens: int) -> int:
        """Add the stages of an option; tokens: of the recorded reply, 0 where there is none. Return the reply."""
        flow = self.flow
        about = joined(*(key for key, _ in before))
        tool: tuple[int, ...] = ()
        if act == SELECT:
            item = choice.arguments
            tool = (flow.delay("details", item, duration_ns="details_ms", after=choice, reads=(item,)),)
        elif act == ALTERNATIVES:
            tool = (
                flow.delay("search", joined(about, choice.outcome), duration_ns="search_ms", after=choice),
            )
        event = (choice.key, _EVENT_TOKENS)
        prompt = flow.text("assistant").with_(*before, event)
        length: int | str = tokens if tokens and self.recorded else "reply_tokens"
        reply = flow.llm(
            "assistant", prompt, about, tokens=length, parents=tool,
            after=None if tool else choice, on=choice if tool else None,
        )  # fmt: skip
        if choice.taken:
            self.said += [event, flow.output(reply)]
        return reply

    def _say(self, parents: tuple[int, ...], tokens: int) -> int:
        """Add the assistant's call that offers; its output enters the conversation."""
        flow = self.flow
        about = joined(*(key for key, _ in self.said))
        prompt = flow.text("assistant").with_(*self.said)
        length: int | str = tokens if self.recorded else "reply_tokens"
        offer = flow.llm("assistant", prompt, about, tokens=length, parents=parents)
        self.said.append(flow.output(offer))
        return offer
