"""A team of agents at one task: the conversation that each call of an agent is given as its prompt.

Two conventions of agent frameworks for what is sent with a call; they decide which cache can be reused by whom:

own      every agent has its own system prompt in front of the team's transcript (the group chat of AutoGen, the
         executors of CrewAI). A later call of the same agent begins with all of its earlier prompt; an agent that is
         called for the first time shares nothing but its system prompt
shared   one preamble (descriptions of all agents and tools), then the transcript, then the agent's instruction (a
         message graph that one prompt template serves). Whoever is called next reuses what all before it computed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from traces import draws
from traces._text import Chain, Part, Text, identity
from traces.builder import WorkloadBuilder
from traces.errors import InputError, nearest

CONTEXTS = ("own", "shared")


@dataclass(frozen=True)
class Team:
    """What all workflows of a workload have in common.

    name           namespace of identities: equal names and parts are equal tokens
    system_tokens  tokens of the system prompt of an agent (own) or of the preamble (shared), with its identity
    context        a convention, see above
    role_tokens    tokens of an agent's instruction at the end of a prompt; `shared` only
    """

    name: str
    system_tokens: int
    context: str = "own"
    role_tokens: int = 64

    def __post_init__(self) -> None:
        if self.context not in CONTEXTS:
            raise InputError(nearest(self.context, CONTEXTS, what="context"))
        for field in ("system_tokens", "role_tokens"):
            if getattr(self, field) < 1:
                raise InputError(f"{field}={getattr(self, field)}, expected at least 1")

    def said(self) -> dict[str, str | int]:
        """Return the team as a provenance states it."""
        out: dict[str, str | int] = {"context": self.context, "system_tokens": self.system_tokens}
        return out | ({"role_tokens": self.role_tokens} if self.context == "shared" else {})


class Chat:
    """One workflow under construction: a chain of stages and the transcript so far. Methods mutate.

    key        of the workflow: what it says is private to this key
    documents  parts that stand before the task, shared with every workflow that has them in the same place
    task       tokens of the task's statement
    """

    def __init__(
        self, builder: WorkloadBuilder, team: Team, key: int, task_tokens: int, documents: Sequence[Part] = ()
    ) -> None:
        self._chain = Chain(builder)
        self._team = team
        self._key = key
        self._opening = (*documents, (identity(team.name, "task", key), task_tokens))
        self._transcript: list[Part] = []
        self._turns = 0

    def call(self, agent: str, output_tokens: int, system: Mapping[str, Part] | None = None) -> None:
        """Add an LLM call of `agent`; its output joins the transcript. `system`: known system prompts by agent."""
        output = self._part(output_tokens)
        self._chain.call(agent, self._prompt(agent, system), output)
        self._transcript.append(output)

    def tool(self, agent: str, duration_ns: int, result_tokens: int = 0, result: Part | None = None) -> None:
        """Add a tool call; its result joins the transcript, `result` where its content has an identity of its own."""
        self._chain.tool(agent, duration_ns)
        if result is not None:
            self._transcript.append(result)
        elif result_tokens:
            self._transcript.append(self._part(result_tokens))

    def _prompt(self, agent: str, system: Mapping[str, Part] | None) -> Text:
        team = self._team
        if team.context == "own":
            known = None if system is None else system.get(agent)
            first = known or (identity(team.name, f"system/{agent}"), team.system_tokens)
            return Text([first, *self._opening, *self._transcript])
        preamble = (identity(team.name, "preamble"), team.system_tokens)
        role = (identity(team.name, f"role/{agent}"), team.role_tokens)
        return Text([preamble, *self._opening, *self._transcript, role])

    def _part(self, tokens: int) -> Part:
        self._turns += 1
        return identity(self._team.name, "said", self._key, self._turns), tokens


def in_part(part: str, purpose: str, name_key: int, test_per_mille: int) -> bool:
    """Say whether a record is in `part`: "all", or "train" and "test", which are disjoint whoever asks.

    purpose, name_key: what is split (a data set) and the record's key in it; no seed: the split never changes.
    """
    if part not in PARTS:
        raise InputError(nearest(part, PARTS, what="part"))
    test = draws.bits(0, f"{purpose}/part", name_key) % 1000 < test_per_mille
    return part == "all" or test == (part == "test")


PARTS = ("all", "train", "test")
