"""Build a `Workload` stage by stage; importers and generators use this and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.branch_builder import BranchBuilder
from traces.errors import InputError
from traces.prefix import PrefixTree, intern
from traces.prompts import PromptDeltas
from traces.schema import StageKind, Workload
from traces.transcript import OUTSIDE, Transcript

_Int32 = NDArray[np.int32]
_Identity = tuple[PrefixTree, _Int32, _Int32, _Int32, _Int32]


class WorkloadBuilder:
    """Collects workflows and stages, interns prefix identity, checks the result.

    Call `workflow`, then `llm`/`delay` for its stages in an order where parents come first, then `build`.
    Mutated by every call but `build`.
    """

    def __init__(self, name: str, hash_block_tokens: int = 16) -> None:
        self.name = name
        self.hash_block_tokens = hash_block_tokens
        self._workflow_names: list[str] = []
        self._arrival_ns: list[int | None] = []
        self._agents: dict[str, int] = {}
        self._rows: list[tuple[int, int, int, int, int, int]] = []
        self._parents: list[Sequence[int]] = []
        self._prompt_units: list[NDArray[np.uint64] | None] = []
        self._sequence_units: list[NDArray[np.uint64] | None] = []
        self._outputs: list[NDArray[np.uint32] | None] = []
        self._blocks: list[Sequence[str] | None] = []
        self._prompts = PromptDeltas()
        self.branches: BranchBuilder | None = None

    def with_branches(self, drafters: Sequence[str] = ()) -> BranchBuilder:
        """Say that the workload has branches; return what collects them. drafters: kinds whose scores it holds."""
        self.branches = BranchBuilder(drafters)
        return self.branches

    def workflow(self, name: str, arrival_ns: int | None = None) -> int:
        """Begin a workflow; return its index."""
        self._workflow_names.append(name)
        self._arrival_ns.append(arrival_ns)
        return len(self._workflow_names) - 1

    def llm(
        self,
        prompt_tokens: int,
        output_tokens: int,
        *,
        parents: Sequence[int] = (),
        agent: str | None = None,
        prompt_units: NDArray[np.uint64] | None = None,
        sequence_units: NDArray[np.uint64] | None = None,
        output_ids: NDArray[np.uint32] | None = None,
        output_blocks: Sequence[str] | None = None,
        prompt_ids: NDArray[np.uint32] | None = None,
    ) -> int:
        """Add an LLM call to the current workflow; return its stage index.

        prompt_units: identity of the prompt, one id a block of `hash_block_tokens` (the last may be partial).
        sequence_units: identity of prompt+output where the output's tokens are known; begins with the
        prompt's full blocks. output_ids: keyed-hash ids, one per output token. output_blocks: name of the semantic
        block open after each output token, "" outside all. prompt_ids: the prompt by the same hash.
        """
        stage = self._stage(
            StageKind.LLM,
            0,
            prompt_tokens,
            output_tokens,
            parents,
            agent,
            prompt_units,
            sequence_units,
            output_ids,
        )
        self._blocks[-1] = output_blocks
        self._prompts.replace_last(self._rows[-1][0], prompt_ids, output_ids)
        return stage

    def delay(
        self, kind: StageKind, duration_ns: int, *, parents: Sequence[int] = (), agent: str | None = None
    ) -> int:
        """Add a tool call or a wait to the current workflow; return its stage index."""
        return self._stage(kind, duration_ns, 0, 0, parents, agent, None, None, None)

    def _stage(
        self,
        kind: StageKind,
        duration_ns: int,
        prompt_tokens: int,
        output_tokens: int,
        parents: Sequence[int],
        agent: str | None,
        prompt_units: NDArray[np.uint64] | None,
        sequence_units: NDArray[np.uint64] | None,
        output_ids: NDArray[np.uint32] | None,
    ) -> int:
        if not self._workflow_names:
            raise InputError("a stage needs a workflow: call workflow() first")
        index = -1 if agent is None else self._agents.setdefault(agent, len(self._agents))
        workflow = len(self._workflow_names) - 1
        self._rows.append((workflow, int(kind), index, duration_ns, prompt_tokens, output_tokens))
        self._parents.append(parents)
        self._prompt_units.append(prompt_units)
        self._sequence_units.append(sequence_units)
        self._outputs.append(output_ids)
        self._blocks.append(None)
        self._prompts.append()
        return len(self._rows) - 1

    def build(self, provenance: dict[str, Any] | None = None) -> Workload:
        """Return the checked workload; raises InputError with the first inconsistency. Does not mutate."""
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 6)
        given = [a for a in self._arrival_ns if a is not None]
        if given and len(given) != len(self._arrival_ns):
            raise InputError(f"{self.name}: field 'arrival_ns': either every workflow has one or none has")
        lengths = [len(p) for p in self._parents]
        prefix, prompt_segment, prompt_shared, sequence_segment, sequence_shared = self._identity(rows)
        with_ids = any(o is not None for o in self._outputs)
        ids = [o if o is not None else np.zeros(0, np.uint32) for o in self._outputs] if with_ids else []
        workload = Workload(
            name=self.name,
            workflow_names=tuple(self._workflow_names),
            workflow_arrival_ns=np.array(given, dtype=np.int64) if given else None,
            agents=tuple(self._agents),
            stage_workflow=rows[:, 0].astype(np.int32),
            stage_kind=rows[:, 1].astype(np.int8),
            stage_agent=rows[:, 2].astype(np.int32),
            stage_duration_ns=rows[:, 3].copy(),
            prompt_tokens=_int32(rows[:, 4], "prompt_tokens"),
            output_tokens=_int32(rows[:, 5], "output_tokens"),
            parent_ptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            parent_idx=np.array([p for ps in self._parents for p in ps], dtype=np.int32),
            prefix=prefix,
            prompt_segment=prompt_segment,
            prompt_shared_tokens=prompt_shared,
            sequence_segment=sequence_segment,
            sequence_shared_tokens=sequence_shared,
            hash_block_tokens=self.hash_block_tokens,
            output_ptr=np.concatenate([[0], np.cumsum([len(o) for o in ids])]).astype(np.int64)
            if ids
            else None,
            output_ids=np.concatenate(ids).astype(np.uint32) if ids else None,
            transcript=self._transcript(ids) if ids else None,
            branches=None if self.branches is None else self.branches.build(len(rows)),
            provenance=provenance or {},
        )
        errors = workload.errors()
        if errors:
            raise InputError(f"{self.name}: {errors[0]}")
        return workload

    def _transcript(self, ids: list[NDArray[np.uint32]]) -> Transcript | None:
        if not any(self._blocks) and not self._prompts.any:
            return None
        names = {"": OUTSIDE}
        blocks: list[int] = []
        for given, out in zip(self._blocks, ids, strict=True):
            if given is not None and len(given) != len(out):
                raise InputError(f"{self.name}: {len(given)} blocks for {len(out)} output tokens")
            blocks += [names.setdefault(b, len(names)) for b in given or [""] * len(out)]
        return Transcript(tuple(names), np.array(blocks, dtype=np.int8), *self._prompts.columns())

    def _identity(self, rows: NDArray[np.int64]) -> _Identity:
        n = len(rows)
        none = np.zeros(0, dtype=np.uint64)
        prompts = [none if u is None else u for u in self._prompt_units]
        sequences = [p if u is None else u for p, u in zip(prompts, self._sequence_units, strict=True)]
        if not any(len(s) for s in prompts) and not any(len(s) for s in sequences):
            minus, zero = np.full(n, -1, np.int32), np.zeros(n, np.int32)
            return PrefixTree.empty(), minus, zero, minus, zero
        # Interning both keeps a segment boundary at each prompt's end, so that prompt_segment exists.
        tree, segment = intern([*prompts, *sequences], self.hash_block_tokens)
        prompt_segment, sequence_segment = segment[:n], segment[n:]
        end = np.concatenate([tree.end_tokens, [0]])  # index -1 reads 0
        prompt_shared = np.minimum(end[prompt_segment], rows[:, 4]).astype(np.int32)
        sequence_shared = np.minimum(end[sequence_segment], rows[:, 4] + rows[:, 5]).astype(np.int32)
        return (
            tree,
            prompt_segment,
            prompt_shared,
            sequence_segment,
            np.maximum(sequence_shared, prompt_shared),
        )


def _int32(values: NDArray[np.int64], field: str) -> NDArray[np.int32]:
    if len(values) and (values.max() > 2**31 - 1 or values.min() < -(2**31)):
        raise InputError(f"field {field!r}: {int(values.max())} does not fit 32 bits")
    return values.astype(np.int32)
