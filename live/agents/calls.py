"""Calls of a model: what is sent for a stage, and what is known of it while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from live.agents.clock import NS_PER_S, Clock
from live.agents.load import ServerLoad
from live.agents.prompts import Prompts
from live.agents.server import Failed, Server
from live.agents.store import ResultStore
from traces.schema import Workload

LOW_PRIORITY = 10  # of fills; canonical requests have 0, and lower goes first


@dataclass
class Call:
    """One request. Times in ns of the run, -1: not yet. failure: "" unless it failed."""

    stage: int
    number: int
    prompt: str
    output_limit: int
    sender: dict[str, Any] | None
    sent_ns: int
    fill: bool = False
    low: bool = False
    first_token_ns: int = -1
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    failure: str = ""


class Caller:
    """Makes calls and keeps what they answer. Methods mutate.

    signals   say in every request who sends it, for hosts inside the server (`live.vllm.attribution`)
    """

    def __init__(
        self,
        workload: Workload,
        server: Server,
        prompts: Prompts,
        store: ResultStore,
        clock: Clock,
        load: ServerLoad,
        *,
        signals: bool,
    ) -> None:
        self._server, self._prompts, self._store = server, prompts, store
        self._clock, self._load, self._signals = clock, load, signals
        self._workflow: list[int] = workload.stage_workflow.tolist()
        self._agents = [workload.agents[a] if a >= 0 else "unnamed" for a in workload.stage_agent.tolist()]
        self._made = 0

    def call(
        self,
        stage: int,
        values: Mapping[int, int],
        reads: tuple[tuple[int, int], ...],
        last: bool = False,
        *,
        fill: bool = False,
        low: bool = False,
    ) -> Call:
        """Return the call of an LLM stage. last: its workflow sends nothing after it."""
        self._made += 1
        sender: dict[str, Any] | None = None
        if self._signals:
            sender = {"wf_id": self._workflow[stage], "agent": self._agents[stage], "stage": stage}
            if last:
                sender["wf_finished"] = 1
        prompt = self._prompts.prompt(stage, values, reads, self._agents[stage])
        limit = self._prompts.output_tokens(stage)
        return Call(stage, self._made, prompt, limit, sender, self._clock.now(), fill, low)

    async def answer(self, call: Call) -> int | None:
        """Send it; return the value of its answer, None where it failed (`failure` says why)."""
        load = self._load
        load.fills += call.fill
        load.canonical += not call.fill
        try:
            done = await self._server.complete(
                call.prompt, call.output_limit, call.number, priority=LOW_PRIORITY if call.low else 0,
                sender=call.sender, once=call.fill,
            )  # fmt: skip
        except Failed as e:
            call.failure = str(e) or "failed"
            return None
        finally:
            load.fills -= call.fill
            load.canonical -= not call.fill
        if done.first_token_ns >= 0:
            call.first_token_ns = self._clock.at(done.first_token_ns / NS_PER_S)
        call.prompt_tokens, call.output_tokens = done.prompt_tokens, done.output_tokens
        call.cached_tokens = done.cached_tokens
        return self._store.add(done.text)
