"""What the tokens of a workload are, beyond the ids of its outputs: semantic blocks, and prompts as ids.

Numbers only: ids are keyed hashes as in `Workload.output_ids`, blocks are indices. A block is what lies between a
pair of delimiters (AgentSpec section 4.1); the importer follows the delimiters in the text it reads, so that no text
has to be kept for a drafter to know the block it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

OUTSIDE = 0  # the block of text outside every pair of delimiters


@dataclass(frozen=True)
class Transcript:
    """Structs of arrays beside a workload's stages. Immutable.

    block_names    names of blocks; `OUTSIDE` is the first
    output_block   int8[len(output_ids)]: the block that is open after that output token, which the next one is in
    prompt_base    int32[S]: an earlier stage whose prompt and output begin this stage's prompt, -1 for none
    prompt_kept    int32[S]: leading tokens of that stage's prompt and output that this prompt begins with
    prompt_ptr/prompt_ids CSR of the prompt's further tokens, uint32
    """

    block_names: tuple[str, ...]
    output_block: NDArray[np.int8]
    prompt_base: NDArray[np.int32]
    prompt_kept: NDArray[np.int32]
    prompt_ptr: NDArray[np.int64]
    prompt_ids: NDArray[np.uint32]

    @property
    def has_prompts(self) -> bool:
        """Whether prompts are known as ids."""
        return len(self.prompt_ids) > 0

    def prompt(
        self, stage: int, output_ptr: NDArray[np.int64], output_ids: NDArray[np.uint32]
    ) -> NDArray[np.uint32]:
        """Return uint32[n], the prompt of a stage; empty where prompts are not known. Does not mutate."""
        pieces: list[NDArray[np.uint32]] = []
        upto = -1  # tokens wanted of the stage's prompt and output; -1: its whole prompt
        while stage >= 0:
            own = self.prompt_ids[self.prompt_ptr[stage] : self.prompt_ptr[stage + 1]]
            kept = int(self.prompt_kept[stage])
            if upto >= 0:
                tail = upto - kept - len(own)
                if tail > 0:
                    start = int(output_ptr[stage])
                    pieces.append(output_ids[start : start + tail])
                elif upto > kept:
                    own = own[: upto - kept]
                else:
                    own = own[:0]
                kept = min(kept, upto)
            pieces.append(own)
            stage, upto = int(self.prompt_base[stage]), kept
        return np.concatenate(pieces[::-1]) if pieces else np.zeros(0, dtype=np.uint32)

    def errors(
        self, prompt_tokens: NDArray[np.int32], output_tokens: NDArray[np.int32], outputs: int
    ) -> list[str]:
        """Return what breaks the schema, one line each. outputs: length of the workload's `output_ids`."""
        s = len(prompt_tokens)
        out = []
        if len(self.output_block) != outputs:
            out.append(f"column 'output_block' has {len(self.output_block)} rows, expected {outputs}")
        if len(self.output_block) and int(self.output_block.min()) < 0:
            out.append("column 'output_block' must not be negative")
        if len(self.output_block) and int(self.output_block.max()) >= len(self.block_names):
            out.append("column 'output_block' names a block that 'block_names' lacks")
        if len(self.prompt_base) != s or len(self.prompt_kept) != s or len(self.prompt_ptr) != s + 1:
            return [*out, f"columns 'prompt_base', 'prompt_kept' and 'prompt_ptr' need {s} stages"]
        if (
            self.prompt_ptr[0] != 0
            or self.prompt_ptr[-1] != len(self.prompt_ids)
            or np.any(np.diff(self.prompt_ptr) < 0)
        ):
            return [*out, "column 'prompt_ptr' does not index 'prompt_ids'"]
        if np.any(self.prompt_base >= np.arange(s)) or np.any(self.prompt_base < -1):
            return [*out, "column 'prompt_base': a base must be an earlier stage"]
        ceiling = np.where(self.prompt_base < 0, 0, (prompt_tokens + output_tokens)[self.prompt_base])
        if np.any(self.prompt_kept > ceiling) or np.any(self.prompt_kept < 0):
            out.append("column 'prompt_kept' exceeds the prompt and output it counts in")
        if self.has_prompts and np.any(self.prompt_kept + np.diff(self.prompt_ptr) != prompt_tokens):
            out.append("columns 'prompt_kept' and 'prompt_ptr' do not add up to 'prompt_tokens'")
        return out

    def columns(self) -> tuple[NDArray[np.generic], ...]:
        """Return every column, for digests."""
        return (
            self.output_block, self.prompt_base, self.prompt_kept, self.prompt_ptr, self.prompt_ids,
        )  # fmt: skip


def applications(agents: Sequence[str]) -> list[int]:
    """Return for each agent the number of its application: agents are named "APPLICATION/ROLE".

    AgentSpec's agent id a_i names the application, not the role within it.

    >>> applications(["swe/editor", "chat", "swe/tester"])
    [0, 1, 0]
    """
    known: dict[str, int] = {}
    return [known.setdefault(a.partition("/")[0], len(known)) for a in agents]
