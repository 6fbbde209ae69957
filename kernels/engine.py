"""A small decode engine over the plan-buffered step: paged KV, batch in, tokens out, graphs by policy.

Greedy, without sampling. Prompts go through the same steps as drafts do, a few tokens at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernels.graphs.replayer import Replayer
from kernels.graphs.work import StepWork
from traces.errors import InputError


@dataclass
class Decoding:
    """One sequence. `context` tokens have keys and values; `waiting` are to be computed, the last one newest."""

    blocks: list[int]
    context: int = 0
    waiting: list[int] = field(default_factory=list)
    emitted: list[int] = field(default_factory=list)


class DecodeEngine:
    """Sequences over one replayer. `add`, `step` and `finish` mutate."""

    def __init__(self, replayer: Replayer) -> None:
        self._replayer = replayer
        self._config = replayer.step.config
        self._free = list(range(self._config.slots // self._config.page))[::-1]
        self._sequences: dict[int, Decoding] = {}
        self._next = 0

    @property
    def free_blocks(self) -> int:
        """KV blocks that no sequence holds."""
        return len(self._free)

    def add(self, prompt: Sequence[int]) -> int:
        """Take a sequence in; return its number. Raises InputError where no seat is left or nothing is asked."""
        if not prompt:
            raise InputError("engine: an empty prompt; allowed: one token or more")
        if len(self._sequences) >= self._config.bounds.batch:
            raise InputError(f"engine: all {self._config.bounds.batch} seats are taken")
        number, self._next = self._next, self._next + 1
        self._sequences[number] = Decoding([], waiting=list(prompt))
        return number

    def finish(self, number: int) -> list[int]:
        """Let a sequence go; return all it emitted."""
        done = self._sequences.pop(number)
        self._free.extend(reversed(done.blocks))
        return done.emitted

    def step(self, drafts: Mapping[int, Sequence[int]] | None = None) -> dict[int, list[int]]:
        """Run one step; return the tokens each sequence emitted: accepted draft tokens and the one after them.

        drafts: tokens proposed for sequences whose prompt is computed; longer ones are cut to the bound. A sequence
        still in its prompt emits nothing until the prompt's last token is computed.
        """
        if not self._sequences:
            return {}
        drafts = drafts or {}
        bounds = self._config.bounds
        new: dict[int, list[int]] = {}
        for number, s in self._sequences.items():
            tokens = s.waiting[: bounds.draft]
            if len(tokens) == len(s.waiting):
                room = min(bounds.draft, bounds.context - s.context) - len(tokens)
                tokens = [*tokens, *list(drafts.get(number, ()))[: max(room, 0)]]
            new[number] = tokens
            # A rectangle may pad every sequence to the widest query.
            self._reserve(s, min(s.context + bounds.draft, bounds.context))
        results = self._replayer.run(self._work(new))
        return {
            number: self._commit(self._sequences[number], tokens, after.tolist())
            for (number, tokens), after in zip(new.items(), results, strict=True)
        }

    def _work(self, new: Mapping[int, list[int]]) -> StepWork:
        tables = np.zeros((len(new), self._config.blocks), dtype=np.int64)
        for row, number in zip(tables, new, strict=True):
            blocks = self._sequences[number].blocks
            row[: len(blocks)] = blocks
        return StepWork(
            tuple(np.array(t, dtype=np.int64) for t in new.values()),
            np.array([self._sequences[n].context for n in new], dtype=np.int64),
            tables,
        )

    def _commit(self, s: Decoding, tokens: list[int], after: list[int]) -> list[int]:
        known = min(len(s.waiting), len(tokens))
        if known < len(s.waiting):
            s.context += known
            s.waiting = s.waiting[known:]
            return []
        accepted = 0
        while known + accepted < len(tokens) and tokens[known + accepted] == after[known - 1 + accepted]:
            accepted += 1
        emitted = after[known - 1 : known + accepted]
        # Keys and values of rejected tokens stay behind the context's end, where the next step overwrites them.
        s.context += known + accepted
        s.waiting = [emitted[-1]]
        s.emitted += emitted
        return emitted

    def _reserve(self, s: Decoding, tokens: int) -> None:
        need = -(-tokens // self._config.page) - len(s.blocks)
        if need > len(self._free):
            raise InputError(
                f"engine: {need} KV blocks needed, {len(self._free)} free; finish a sequence first"
            )
        s.blocks += [self._free.pop() for _ in range(max(need, 0))]
