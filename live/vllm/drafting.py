"""The drafter host: a drafter and a budget in an engine's worker. Knows vLLM's batches, imports no vLLM.

Called after every step with what its rows sampled. A drafter hears `begin` with a request's first token, `commit` with
all of a step's, `finish` once the worker has forgotten the request; drafts are for the step to come. Whatever goes
wrong in a policy, the engine decodes without drafts, and the log says so once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from live.vllm.attribution import Attribution, AttributionReader
from live.vllm.draftsettings import DraftSettings
from live.vllm.guard import PolicyGuard
from policies.api import Policy
from policies.views import BatchView, Draft, HostInfo, Proposals, RequestView
from traces.errors import InputError
from traces.structure import parse_structure
from traces.transcript import applications

_LOG = logging.getLogger("vllm.foreserve")
_PRIOR_RATE, _KEPT = 0.5, 0.9  # as in sim/speculate.py


class Sent(NamedTuple):
    """What is known of a request: its extra arguments, prompt, and the most tokens it may generate."""

    extra: Mapping[str, Any] | None
    prompt: Any
    tokens_max: int


class Row(NamedTuple):
    """One row of the batch that just ran: the request's name, its new tokens, and tokens known by now."""

    name: str
    sampled: Sequence[int]
    tokens: int


@dataclass(slots=True)
class _Open:
    """A request between its first token and its end."""

    number: int
    left: int  # tokens that it may still generate
    rate: float = _PRIOR_RATE


class DraftHost:
    """Every method but `about` mutates.

    verified_steps   (request's number, drafted, accepted) of every sequence and step, where the settings keep them
    """

    def __init__(
        self,
        settings: DraftSettings,
        info: HostInfo,
        vocabulary: int,
        clock_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self.settings = settings
        self._info = info
        self._vocabulary = vocabulary
        self._max_len = info.profile.max_model_len
        self._clock_ns = clock_ns
        self._began_ns = clock_ns()
        self._reader = AttributionReader(settings.agents, self._say)
        self._applications = applications(settings.agents)
        self._queries: dict[str, int] = {}
        self._complained = False
        self._open: dict[str, _Open] = {}
        self._next = 0
        self._verified: Mapping[str, int] = {}
        drafter, budget = settings.load_drafter(), settings.load_budget()
        limit_ns = round(settings.call_ms_max * 1e6)
        self.drafter = PolicyGuard(drafter, drafter.new_state(info), self._say, limit_ns)
        self.budget = PolicyGuard(budget, budget.new_state(info), self._say, limit_ns)
        self.failed = ""
        self.verified_steps: list[tuple[int, int, int]] = []
        self.steps = self.drafted = self.verified = self.accepted = 0

    @property
    def alive(self) -> bool:
        """Whether anything is still drafted."""
        return self.drafter.alive and self.budget.alive and not self.failed

    def scheduled(self, drafts: Mapping[str, Sequence[int]]) -> None:
        """The scheduler verifies these drafts in the step that runs now; it may have cut what was proposed."""
        self._verified = {name: len(tokens) for name, tokens in drafts.items()}

    def step(
        self, rows: Sequence[Row], known: Callable[[str], bool], request: Callable[[str], Sent]
    ) -> list[list[int]]:
        """Return a draft for each row, [] where it sampled nothing or has said all it may.

        known: whether the worker still has a request.
        """
        nothing: list[list[int]] = [[] for _ in rows]
        if not self.alive:
            return nothing
        try:
            self._hear(rows, known, request)
            return self._draft(rows) if self.alive else nothing
        except Exception as e:
            self.failed = f"{type(e).__name__}: {e}"
            self._say(f"the drafter host stopped, decoding without drafts from here on: {self.failed}")
            return nothing

    def about(self) -> dict[str, Any]:
        """Return what is known of the run."""
        return {
            "drafter_options": _options(self.drafter.policy), "budget_options": _options(self.budget.policy),
            "tokens_max": self.settings.tokens_max, "corrupt_every": self.settings.corrupt_every,
            "drafter": self.settings.drafter, "budget": self.settings.budget, "steps": self.steps,
            "drafted_tokens": self.drafted, "verified_tokens": self.verified, "accepted_tokens": self.accepted,
            "drafter_dropped": self.drafter.dropped, "budget_dropped": self.budget.dropped,
            "host_failed": self.failed, "calls": {**self.drafter.calls, **self.budget.calls},
            "cost_ns": {**self.drafter.cost_ns, **self.budget.cost_ns},
        }  # fmt: skip

    def close(self) -> None:
        """Write counts and costs, where the settings say so."""
        if self.settings.log_file:
            text = json.dumps(self.about(), indent=1, sort_keys=True) + "\n"
            Path(self.settings.log_file).write_text(text, encoding="utf-8")

    # -- what the drafter hears -----------------------------------------------------------------------------

    def _hear(
        self, rows: Sequence[Row], known: Callable[[str], bool], request: Callable[[str], Sent]
    ) -> None:
        for name in [n for n in self._open if not known(n)]:
            self.drafter.call("finish", self._open.pop(name).number)
        numbers, drafted, accepted = [], [], []
        requests, tokens = [], []
        for row in rows:
            if not row.sampled:
                continue
            open_ = self._open.get(row.name)
            if open_ is None:
                sent = request(row.name)
                if sent.tokens_max <= 1:  # it ends with this token
                    continue
                open_ = self._begin(row, sent)
                count = 1
            else:
                # Past its end a request is still sampled from what was drafted: nobody reads that.
                count = min(len(row.sampled), open_.left)
                if not count:
                    continue
                k, a = self._verified.get(row.name, 0), count - 1
                if self.settings.keep_steps:
                    self.verified_steps.append((open_.number, k, a))
                numbers.append(open_.number)
                drafted.append(k)
                accepted.append(a)
                if k:
                    open_.rate = _KEPT * open_.rate + (1 - _KEPT) * a / k
                self.verified += k
                self.accepted += a
            open_.left -= count
            requests.append(open_.number)
            tokens.append(np.array(row.sampled[:count], dtype=np.uint32))
        self._verified = {}
        if numbers:
            arrays = (np.array(x, dtype=np.int32) for x in (numbers, drafted, accepted))
            self.budget.call("observe", *arrays)
        if requests:
            self.drafter.call("commit_batch", requests, tokens, [None] * len(requests))

    def _begin(self, row: Row, sent: Sent) -> _Open:
        extra, prompt = sent.extra, sent.prompt
        sender = self._reader.read(extra)
        open_ = self._open[row.name] = _Open(self._next, sent.tokens_max)
        self._next += 1
        prompt_ids: NDArray[np.uint32] = np.array(prompt if prompt is not None else (), dtype=np.uint32)
        view = RequestView(
            open_.number, sender.stage, sender.workflow, self._agent(sender, extra), self._now_ns(),
            len(prompt_ids), structure=self._structure(extra), query=self._query(sender, extra),
        )  # fmt: skip
        self.drafter.call("begin", view, prompt_ids)
        return open_

    def _agent(self, sender: Attribution, extra: Mapping[str, Any] | None) -> int:
        given = (extra or {}).get("agent_id")
        if given is not None:
            return self._number(f"agent {given}")
        return self._applications[sender.agent] if sender.agent >= 0 else -1

    def _query(self, sender: Attribution, extra: Mapping[str, Any] | None) -> int:
        given = (extra or {}).get("query_id")
        return sender.workflow if given is None else self._number(f"query {given}")

    def _number(self, name: str) -> int:
        return self._queries.setdefault(name, (1 << 30) + len(self._queries))

    def _structure(self, extra: Mapping[str, Any] | None) -> str | None:
        given = (extra or {}).get("structure")
        if given is None:
            return None
        try:
            if not isinstance(given, str):
                raise InputError(f"structure: got {str(given)[:60]!r}, allowed: a text")
            parse_structure(given)
        except InputError as e:
            if not self._complained:
                self._complained = True
                self._say(f"{e}; left out")
            return None
        return given

    # -- what it drafts -------------------------------------------------------------------------------------

    def _draft(self, rows: Sequence[Row]) -> list[list[int]]:
        out: list[list[int]] = [[] for _ in rows]
        places = [
            i
            for i, row in enumerate(rows)
            if row.sampled and row.name in self._open and self._open[row.name].left
        ]
        if not places:
            return out
        self.steps += 1
        numbers = [self._open[rows[i].name].number for i in places]
        # The step to come, as far as it is known here: these rows, each with the token that it has just sampled.
        view = BatchView(self._now_ns(), len(places), sum(rows[i].tokens for i in places), 0)
        limit = self.budget.call("limit", view)
        drafts = self.drafter.call("propose_batch", numbers, int(limit or 0))
        if not self.alive or not self._sound(drafts, len(places)):
            return out
        lengths = [
            max(0, min(len(draft.tokens), self.settings.tokens_max, self._max_len - rows[i].tokens - 1))
            for i, draft in zip(places, drafts, strict=True)
        ]
        proposals = Proposals(
            request=np.array(numbers, dtype=np.int32),
            length=np.array(lengths, dtype=np.int32),
            drafts=drafts,
            acceptance=np.array([self._open[rows[i].name].rate for i in places], dtype=np.float32),
        )
        granted = self.budget.call("allocate", proposals, view)
        if not self.alive or not self._allowed(granted, lengths):
            return out
        for i, draft, k in zip(places, drafts, granted.tolist(), strict=True):
            out[i] = self._told(draft.tokens[:k].tolist())
        return out

    def _sound(self, drafts: Any, rows: int) -> bool:
        if isinstance(drafts, list) and len(drafts) == rows:
            widths = all(isinstance(d, Draft) for d in drafts)
            if widths and all(len(d.tokens) == 0 or int(d.tokens.max()) < self._vocabulary for d in drafts):
                return True
        self.drafter.refuse(
            f"propose answered what is no draft of tokens below {self._vocabulary} for {rows} rows"
        )
        return False

    def _allowed(self, granted: Any, lengths: list[int]) -> bool:
        try:
            values = [int(k) for k in granted]
        except (TypeError, ValueError):
            values = []
        if len(values) == len(lengths) and all(0 <= k <= n for k, n in zip(values, lengths, strict=True)):
            return True
        self.budget.refuse(f"allocate answered {str(granted)[:60]}, allowed: 0 to {lengths}")
        return False

    def _told(self, tokens: list[int]) -> list[int]:
        every = self.settings.corrupt_every
        for i in range(len(tokens)):
            self.drafted += 1
            if every and self.drafted % every == 0:
                tokens[i] = (tokens[i] + 1) % self._vocabulary
        return tokens

    def _now_ns(self) -> int:
        return self._clock_ns() - self._began_ns

    def _say(self, line: str) -> None:
        _LOG.warning("foreserve: %s", line)


def _options(policy: Policy[Any]) -> dict[str, Any]:
    return {f.name: getattr(policy, f.name) for f in fields(policy)}
