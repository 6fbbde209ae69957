"""The workload: what agents did, as numbers. Importers make it, generators make it, hosts replay it.

A workflow is one agent task: a graph of stages. A stage is an LLM call, a tool call or a wait (think time).
A stage starts when all its parents are done; a stage without parents starts with its workflow. Sizes are
tokens, times are integer nanoseconds. Prompts carry no text: their identity is a path in `prefix`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.branches import Branches
from traces.prefix import Int32, Int64, PrefixTree
from traces.transcript import Transcript

SCHEMA_VERSION = 1


class StageKind(IntEnum):
    """What a stage is; only LLM stages become requests."""

    LLM = 0
    TOOL = 1
    WAIT = 2


@dataclass(frozen=True)
class Workload:
    """All workflows of a trace, struct of arrays. S stages, W workflows, A agents.

    workflow_names        str[W]
    workflow_arrival_ns   int64[W], or None when the source has no arrival times
    agents                str[A]: who runs a stage ("planner", "claude-opus", ...)
    stage_workflow        int32[S], ascending: the stages of a workflow are contiguous, parents before children
    stage_kind            int8[S]: StageKind
    stage_agent           int32[S]: index into `agents`, -1 where the source names none
    stage_duration_ns     int64[S]: tool and wait stages; 0 for LLM stages
    prompt_tokens         int32[S]: LLM stages, at least 1; 0 otherwise
    output_tokens         int32[S]: LLM stages, at least 0; 0 otherwise
    parent_ptr/parent_idx CSR: parents of stage s are parent_idx[parent_ptr[s]:parent_ptr[s+1]], each < s
    prefix                identity of prompts and of prompt+output where the source knows it
    prompt_segment        int32[S]: last segment of the prompt's identity, -1 when it has none
    prompt_shared_tokens  int32[S]: leading prompt tokens that have an identity; the rest is private to the stage
    sequence_segment      int32[S]: last segment of the identity of prompt followed by output; at or below
                          prompt_segment; equal to it where the output's tokens are unknown
    sequence_shared_tokens int32[S]: leading tokens of prompt+output that have an identity
    output_ptr/output_ids CSR of keyed-hash output token ids (uint32), or None: exact greedy acceptance needs them
    transcript            semantic blocks of outputs and prompts as ids, or None (`traces/transcript.py`)
    hash_block_tokens     tokens a unit of identity covers in the source (16, 64, 512; 1 for token ids)
    branches              decisions, what each outcome runs, resources (traces/branches.py); None where there are none
    provenance            source, licence, digest, command, counts of what was not imported
    """

    name: str
    workflow_names: tuple[str, ...]
    workflow_arrival_ns: Int64 | None
    agents: tuple[str, ...]
    stage_workflow: Int32
    stage_kind: NDArray[np.int8]
    stage_agent: Int32
    stage_duration_ns: Int64
    prompt_tokens: Int32
    output_tokens: Int32
    parent_ptr: Int64
    parent_idx: Int32
    prefix: PrefixTree
    prompt_segment: Int32
    prompt_shared_tokens: Int32
    sequence_segment: Int32
    sequence_shared_tokens: Int32
    hash_block_tokens: int = 16
    output_ptr: Int64 | None = None
    output_ids: NDArray[np.uint32] | None = None
    transcript: Transcript | None = None
    branches: Branches | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def n_workflows(self) -> int:
        """Number of workflows."""
        return len(self.workflow_names)

    @property
    def n_stages(self) -> int:
        """Number of stages of every kind."""
        return len(self.stage_workflow)

    @property
    def n_requests(self) -> int:
        """Number of LLM stages of the recorded run."""
        return int(np.count_nonzero((self.stage_kind == StageKind.LLM) & self.canonical()))

    def canonical(self) -> NDArray[np.bool_]:
        """Return bool[S]: stages of the recorded run, all but those of options that were not taken."""
        return np.ones(self.n_stages, dtype=bool) if self.branches is None else self.branches.canonical()

    def digest(self) -> str:
        """Return a hex digest of every number in the workload (not of its provenance or name)."""
        h = hashlib.blake2b(digest_size=16)
        h.update(
            json.dumps([SCHEMA_VERSION, self.workflow_names, self.agents, self.hash_block_tokens]).encode()
        )
        for column in (
            self.workflow_arrival_ns, self.stage_workflow, self.stage_kind, self.stage_agent, self.stage_duration_ns,
            self.prompt_tokens, self.output_tokens, self.parent_ptr, self.parent_idx, self.prefix.parent_segment,
            self.prefix.start_tokens, self.prefix.end_tokens, self.prompt_segment, self.prompt_shared_tokens,
            self.sequence_segment, self.sequence_shared_tokens, self.output_ptr, self.output_ids,
        ):  # fmt: skip
            h.update(b"-" if column is None else np.ascontiguousarray(column).tobytes())
            h.update(b"|")
        if self.transcript is not None:
            h.update(json.dumps(self.transcript.block_names).encode())
            for part in self.transcript.columns():
                h.update(np.ascontiguousarray(part).tobytes() + b"|")
        if self.branches is not None:
            h.update(json.dumps(self.branches.drafters).encode())
            for column in self.branches.columns().values():
                h.update(np.ascontiguousarray(column).tobytes())
                h.update(b"|")
        return h.hexdigest()

    def errors(self) -> list[str]:
        """Return what breaks the schema, one line each; empty when the workload is sound. Does not mutate."""
        out = _column_errors(self)
        if out:
            return out
        llm = self.stage_kind == StageKind.LLM
        for bad, text in (
            (np.diff(self.stage_workflow) < 0, "field 'stage_workflow' must be ascending"),
            (llm & (self.prompt_tokens < 1), "field 'prompt_tokens' of an LLM stage must be at least 1"),
            (llm & (self.output_tokens < 0), "field 'output_tokens' must not be negative"),
            (~llm & ((self.prompt_tokens != 0) | (self.output_tokens != 0)), "only LLM stages have tokens"),
            (llm & (self.stage_duration_ns != 0), "field 'stage_duration_ns' of an LLM stage must be 0"),
            (self.stage_duration_ns < 0, "field 'stage_duration_ns' must not be negative"),
            (
                (self.stage_agent < -1) | (self.stage_agent >= len(self.agents)),
                "field 'stage_agent' out of range",
            ),
            (
                self.prompt_shared_tokens > self.prompt_tokens,
                "'prompt_shared_tokens' exceeds 'prompt_tokens'",
            ),
            (
                self.sequence_shared_tokens > self.prompt_tokens + self.output_tokens,
                "'sequence_shared_tokens' exceeds prompt and output tokens",
            ),
            (
                self.sequence_shared_tokens < self.prompt_shared_tokens,
                "'sequence_shared_tokens' below prompt's",
            ),
        ):
            if np.any(bad):
                out.append(f"stage {int(np.flatnonzero(bad)[0])}: {text}")
        child = np.repeat(np.arange(self.n_stages), np.diff(self.parent_ptr))
        if np.any(self.parent_idx >= child) or np.any(self.parent_idx < 0):
            out.append("field 'parent_idx': a parent must be an earlier stage")
        elif np.any(self.stage_workflow[self.parent_idx] != self.stage_workflow[child]):
            out.append("field 'parent_idx': a parent must belong to the same workflow")
        if self.workflow_arrival_ns is not None and np.any(self.workflow_arrival_ns < 0):
            out.append("field 'workflow_arrival_ns' must not be negative")
        out += self.prefix.errors()
        if self.transcript is not None:
            outputs = 0 if self.output_ids is None else len(self.output_ids)
            out += self.transcript.errors(self.prompt_tokens, self.output_tokens, outputs)
        for column, shared in (
            (self.prompt_segment, self.prompt_shared_tokens),
            (self.sequence_segment, self.sequence_shared_tokens),
        ):
            if np.any((column < -1) | (column >= len(self.prefix))):
                out.append("a prefix segment is out of range")
            elif len(self.prefix):
                end = np.where(column < 0, 0, self.prefix.end_tokens[np.maximum(column, 0)])
                start = np.where(column < 0, -1, self.prefix.start_tokens[np.maximum(column, 0)])
                if np.any(shared > end) or np.any(shared <= start):
                    out.append("shared tokens must end inside the last segment")
            elif np.any(shared != 0):
                out.append("shared tokens without a prefix segment")
        if not out and self.branches is not None:
            out += self.branches.errors(self)
        return out


def _column_errors(w: Workload) -> list[str]:
    s = len(w.stage_workflow)
    out = []
    for name in (
        "stage_kind", "stage_agent", "stage_duration_ns", "prompt_tokens", "output_tokens", "prompt_segment",
        "prompt_shared_tokens", "sequence_segment", "sequence_shared_tokens",
    ):  # fmt: skip
        if len(getattr(w, name)) != s:
            out.append(f"column {name!r} has {len(getattr(w, name))} rows, expected {s}")
    if len(w.parent_ptr) != s + 1 or w.parent_ptr[0] != 0 or w.parent_ptr[-1] != len(w.parent_idx):
        out.append("column 'parent_ptr' does not index 'parent_idx'")
    elif np.any(np.diff(w.parent_ptr) < 0):
        out.append("column 'parent_ptr' must be ascending")
    if w.workflow_arrival_ns is not None and len(w.workflow_arrival_ns) != w.n_workflows:
        out.append("column 'workflow_arrival_ns' has another length than 'workflow_names'")
    if s and (int(w.stage_workflow.min()) < 0 or int(w.stage_workflow.max()) >= w.n_workflows):
        out.append("column 'stage_workflow' out of range")
    if (w.output_ptr is None) != (w.output_ids is None):
        out.append("columns 'output_ptr' and 'output_ids' come together")
    elif (
        w.output_ptr is not None
        and w.output_ids is not None
        and (len(w.output_ptr) != s + 1 or w.output_ptr[-1] != len(w.output_ids))
    ):
        out.append("column 'output_ptr' does not index 'output_ids'")
    return out
