"""What a stage's input renders to at run time, and what it truly returns.

Values and inputs are 64-bit numbers that stand for texts: equal numbers, equal texts. A rendered input is made of the
template, the stage's own content (which says what it reads) and what its parents returned. A stage on the path of a
branch does not see what the deciding stage wrote, only the choice it led to: so an early execution of a candidate
renders exactly the input that the canonical one will, if the choice and its arguments are the same.

The truth function is what an engine or a tool would return. It knows nothing of reuse names: what is served in its
place is checked against it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from traces.branch_builder import BranchBuilder
from traces.branches import Branches, StageFlag
from traces.draws import key, mix
from traces.schema import StageKind, Workload

_RENDER, _VALUE, _CHOICE = (key(0, f"rendering/{part}") for part in ("input", "value", "choice"))
_MASK = (1 << 64) - 1


def digest(seed: int, *parts: int) -> int:
    """Return 64 bits that depend on the parts and their order."""
    for part in parts:
        seed = mix(seed ^ (part & _MASK))
    return seed


class Rendering:
    """Inputs and true values of a workload's stages. Read-only once made.

    inputs[s]   (parent, choice) of each parent: choice is None where the parent's value enters, else the number that
                stands for outcome and arguments of the option whose path the stage is on
    branches    those of the workload, or `of_prompts`
    path[s]     option whose path the stage is on, -1 for none
    external    (time_ns, resource) of others' writes, by workflow, after its start; of -1 after the start of the run
    """

    def __init__(self, workload: Workload) -> None:
        known = workload.branches is not None
        self.branches = b = workload.branches or of_prompts(workload)
        self.path = path_of(b)
        branch = b.option_branch.tolist()
        decides = b.branch_stage.tolist()
        choice = [
            digest(_CHOICE, o, a)
            for o, a in zip(b.option_outcome.tolist(), b.option_arguments.tolist(), strict=True)
        ]
        ptr, parents = workload.parent_ptr.tolist(), workload.parent_idx.tolist()
        self.inputs: list[tuple[tuple[int, int | None], ...]] = []
        for s, option in enumerate(self.path):
            decided = decides[branch[option]] if option >= 0 else -1
            given = parents[ptr[s] : ptr[s + 1]] if known else ()
            self.inputs.append(tuple((p, choice[option] if p == decided else None) for p in given))
        self.fingerprint: list[int] = b.stage_fingerprint.tolist()
        self.params: list[int] = b.stage_params.tolist()
        self.reads = _rows(b.read_ptr.tolist(), b.read_key.tolist())
        self.writes = _rows(b.write_ptr.tolist(), b.write_key.tolist())
        self.speculable: list[bool] = ((b.stage_flags & StageFlag.SPECULABLE) != 0).tolist()
        self._content: list[int] = b.stage_content.tolist()
        self.external: dict[int, list[tuple[int, int]]] = {}
        columns = (b.external_workflow, b.external_time_ns, b.external_key)
        for workflow, time_ns, resource in zip(*(c.tolist() for c in columns), strict=True):
            self.external.setdefault(workflow, []).append((time_ns, resource))

    def rendered(self, stage: int, values: Mapping[int, int]) -> int:
        """Return the rendered input of `stage`, given the values its parents returned by stage; KeyError without."""
        x = digest(_RENDER, self.fingerprint[stage], self._content[stage], *self.reads[stage])
        for parent, choice in self.inputs[stage]:
            x = mix(x ^ (values[parent] if choice is None else choice))
        return x

    def value(self, stage: int, rendered: int, read_set: tuple[tuple[int, int], ...]) -> int:
        """Return what `stage` truly returns for this input when its resources have these (key, version).

        A stage that is not determined by its input returns something of its own every time.
        """
        x = digest(_VALUE, rendered, self.params[stage])
        for resource, version in read_set:
            x = digest(x, resource, version)
        return x if self.speculable[stage] else digest(x, stage)


def of_prompts(workload: Workload) -> Branches:
    """Return what a workload without branches says of its stages: no decisions, and inputs equal where prompts are.

    A prompt whose every token has an identity is the same as another when both end at the same place of the same
    segment, and then the call is taken to be determined by it; nothing else is.
    """
    builder = BranchBuilder()
    whole = (workload.prompt_shared_tokens == workload.prompt_tokens) & (workload.stage_kind == StageKind.LLM)
    content = (workload.prompt_segment.astype(np.int64) << 32) | workload.prompt_tokens
    for s in np.flatnonzero(whole).tolist():
        builder.stage(
            s, fingerprint=int(workload.stage_agent[s]) + 1, content=int(content[s]), speculable=True
        )
    return builder.build(workload.n_stages)


def path_of(b: Branches) -> list[int]:
    """Return for every stage the option whose path it is on, -1 for none."""
    path = np.full(len(b.stage_option), -1, dtype=np.int64)
    path[b.option_stage_idx] = np.repeat(np.arange(b.n_options), np.diff(b.option_stage_ptr))
    return path.tolist()


def _rows(ptr: list[int], values: list[int]) -> list[tuple[int, ...]]:
    return [tuple(values[a:b]) for a, b in itertools.pairwise(ptr)]
