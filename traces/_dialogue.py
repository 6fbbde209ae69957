"""Agent transcripts as text to a workload of token ids: what the importers of transcripts share.

A session is a list of calls in their order; a call has the pieces of its prompt (messages, as recorded) and its
output. Every piece is tokenised by itself, so that a prompt which repeats earlier messages repeats their ids. Blocks
are read from the output's text by the automaton that drafters use (`traces/structure.py`). Nothing else of the text
is kept: ids pass through a keyed hash, prompts through the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces._records import wanted
from traces._token_ids import KeyedIds, block_units, content_key
from traces._tokenizer import Tokenizer, load
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.schema import Workload
from traces.structure import Blocks, parse_structure

Encode = str | Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class Call:
    """One LLM call: who runs it, the messages it read, what it wrote."""

    agent: str
    prompt: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class Session:
    """One workflow: its name and its calls in their order."""

    name: str
    calls: list[Call] = field(repr=False)


def gather(
    found: Iterable[tuple[str, Callable[[], list[Call]]]],
    only: Path | None,
    skipped: Counter[str],
    unit: str,
    least: str,
) -> list[Session]:
    """Return the sessions that are asked for and have a call.

    found: name of each and what reads its calls, which is done only for those asked for. only: as `wanted` takes it.
    unit, least: what a session and a call of it are called in the counts of `skipped`, which this mutates.
    """
    names = wanted(only)
    sessions = []
    for name, read_calls in found:
        if names is not None and name not in names:
            skipped[f"{unit} not asked for"] += 1
            continue
        calls = read_calls()
        if calls:
            sessions.append(Session(name, calls))
        else:
            skipped[f"{unit} without {least}"] += 1
    return sessions


class Outlines:
    """Reads the blocks of outputs, by the automaton of a structure. Read-only after construction."""

    def __init__(self, structure: str, encode: Callable[[str], Sequence[int]]) -> None:
        self._structure = parse_structure(structure)
        kinds = max((p.block for p in self._structure.pairs), default=0)
        self._names = ["", *(f"group-{g}" for g in range(1, 1 + kinds))]
        self._encode = encode

    def of(self, text: str) -> tuple[Sequence[int], list[str]]:
        """Return a text's token ids and the name of the block that is open after each, "" outside all.

        A tokenizer that does not say which text its tokens have leaves everything outside.
        """
        if not isinstance(self._encode, Tokenizer):
            ids = self._encode(text)
            return ids, [""] * len(ids)
        ids, pieces = self._encode.pieces(text)
        at = Blocks(self._structure)
        out = []
        for piece in pieces:
            at.read(at.pending + piece)
            out.append(self._names[at.block])
        return ids, out


def workload(
    name: str,
    sessions: Sequence[Session],
    *,
    tokenizer: Encode,
    structure: str,
    block_tokens: int,
    provenance: dict[str, Any],
) -> Workload:
    """Return the workload of these sessions; agents are named "<name>/<agent>". Raises InputError."""
    if block_tokens < 1:
        raise InputError(f"block_tokens={block_tokens}, expected at least 1")
    encode = load(tokenizer) if isinstance(tokenizer, str) else tokenizer
    outlines = Outlines(structure, encode)
    content = ["\0".join([s.name, *(p for c in s.calls for p in (*c.prompt, c.output))]) for s in sessions]
    keyed = KeyedIds(content_key(c.encode() for c in content))
    texts: dict[str, NDArray[np.uint32]] = {}

    def ids_of(text: str) -> NDArray[np.uint32]:
        if text not in texts:
            texts[text] = keyed.of(encode(text))
        return texts[text]

    builder = WorkloadBuilder(name, block_tokens)
    agents: dict[str, int] = {}
    empty = 0
    for session in sessions:
        builder.workflow(session.name)
        parents: list[int] = []
        for call in session.calls:
            prompt = np.concatenate([ids_of(p) for p in call.prompt if p])
            ids, blocks = outlines.of(call.output)
            output = texts[call.output] = keyed.of(ids)
            empty += not len(output)
            agents[call.agent] = agents.get(call.agent, 0) + 1
            parents = [
                builder.llm(
                    len(prompt),
                    len(output),
                    parents=parents,
                    agent=f"{name}/{call.agent}",
                    prompt_units=block_units(prompt, block_tokens),
                    sequence_units=block_units(np.concatenate([prompt, output]), block_tokens),
                    output_ids=output,
                    output_blocks=blocks,
                    prompt_ids=prompt,
                )
            ]
    said = {
        "format": name,
        "tokenizer": Path(tokenizer).stem if isinstance(tokenizer, str) else "a function",
        "records": {"sessions": len(sessions), "calls": dict(sorted(agents.items()))},
        "calls_with_empty_output": empty,
        "structure": structure,
        "identity": "keyed hash of token ids, key made from the sessions' content; prompts and prompt+output in full"
        " blocks; prompts and outputs as ids",
        "timing": "none recorded: a call follows the one before at once",
    }
    return builder.build({**said, **provenance})
