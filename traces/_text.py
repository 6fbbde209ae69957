"""Prompts as parts with an identity each, and workflows in which each stage follows the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traces import draws
from traces._token_ids import block_units
from traces.builder import WorkloadBuilder
from traces.schema import StageKind

Part = tuple[int, int]  # (identity, tokens)


@dataclass
class Text:
    """A prompt as parts with an identity each: equal parts in equal places are equal tokens."""

    parts: list[Part] = field(default_factory=list)

    def with_(self, *parts: Part) -> Text:
        """Return this text followed by `parts`. Does not mutate."""
        return Text([*self.parts, *parts])

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return sum(n for _, n in self.parts)

    def units(self, block_tokens: int) -> NDArray[np.uint64]:
        """Return the ids of the full blocks, uint64[tokens // block_tokens]."""
        ids = [np.arange(n, dtype=np.uint64) + np.uint64(identity) for identity, n in self.parts]
        return block_units(np.concatenate(ids), block_tokens)


def identity(name: str, purpose: str, *ids: int) -> int:
    """Return the identity of a piece of text: 63 bits that depend on the arguments alone."""
    return draws.bits(0, f"{name}/{purpose}", *ids) >> 1


def add_call(builder: WorkloadBuilder, agent: str, prompt: Text, output: Part, parents: Sequence[int]) -> int:
    """Add an LLM call that continues `prompt` by `output`; return its stage. Mutates `builder`."""
    block = builder.hash_block_tokens
    return builder.llm(
        prompt.tokens,
        output[1],
        parents=parents,
        agent=agent,
        prompt_units=prompt.units(block),
        sequence_units=prompt.with_(output).units(block),
    )


class Chain:
    """One workflow under construction: each stage after the one before. Methods mutate, the builder too."""

    def __init__(self, builder: WorkloadBuilder) -> None:
        self._builder = builder
        self._last: list[int] = []

    def call(self, agent: str, prompt: Text, output: Part) -> None:
        """Add an LLM call."""
        self._last = [add_call(self._builder, agent, prompt, output, self._last)]

    def tool(self, agent: str, duration_ns: int) -> None:
        """Add a tool call."""
        self._last = [self._builder.delay(StageKind.TOOL, duration_ns, parents=self._last, agent=agent)]
