"""Parts of workflows that could be served whole: subgraphs of the template, and whole requests.

A part is known at its first stage: by its template, by what its stages' own prompts say, and by the values that enter
it from outside. It is offered only where all of that is known, nothing of it has begun, and every stage of it is
determined by its input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from policies.reuse_names import hashed
from policies.views import Scope
from traces.portable import log
from traces.rendering import Rendering
from traces.schema import Workload

_PART, _INPUTS, _PARAMS = 0x5AB1, 0x1A9C, 0x9A7A


@dataclass(frozen=True)
class _Part:
    scope: Scope  # inputs: what is known before the run
    members: tuple[int, ...]
    outside: tuple[int, ...]  # stages outside whose values enter, in order


class Scopes:
    """Parts by the stage they begin with, outermost first. Read-only once made."""

    def __init__(self, workload: Workload, rendering: Rendering) -> None:
        b = rendering.branches
        canonical = b.canonical()
        content: list[int] = b.stage_content.tolist()
        first_of = np.searchsorted(workload.stage_workflow, np.arange(workload.n_workflows + 1)).tolist()
        bounds = {
            (int(f), int(last)): int(g)
            for f, last, g in zip(b.subgraph_first, b.subgraph_last, b.subgraph_fingerprint, strict=True)
        }
        whole: dict[int, tuple[int, ...]] = {}
        for w in range(workload.n_workflows):
            stages = tuple(s for s in range(first_of[w], first_of[w + 1]) if canonical[s])
            if len(stages) > 1:
                whole[stages[0]] = stages
                covering = [
                    g for (f, last), g in bounds.items() if f <= stages[0] and last >= stages[-1]
                ] or [0]
                bounds[stages[0], stages[-1]] = covering[0]
        self._parts: dict[int, list[_Part]] = {}
        for (first, last), fingerprint in sorted(bounds.items(), key=lambda item: (item[0][0], -item[0][1])):
            members = tuple(s for s in range(first, last + 1) if canonical[s])
            if len(members) < 2 or members[0] != first or not all(rendering.speculable[s] for s in members):
                continue
            inside = set(members)
            outside = sorted(
                {
                    p
                    for s in members
                    for p, choice in rendering.inputs[s]
                    if choice is None and p not in inside
                }
            )
            own = [x for s in members for x in _own(s, first, inside, content, rendering)]
            scope = Scope(
                kind="request" if members == whole.get(first) else "subgraph",
                fingerprint=hashed(_PART, fingerprint, *(rendering.fingerprint[s] for s in members)),
                inputs=hashed(_INPUTS, *own),
                parameters=hashed(_PARAMS, *(rendering.params[s] for s in members)),
                stages=len(members),
                keys=tuple(sorted({k for s in members for k in rendering.reads[s]})),
                span=last - first + 1,
            )
            self._parts.setdefault(first, []).append(_Part(scope, members, tuple(outside)))
        self._likelihoods()

    def beginning(
        self, stage: int, values: Mapping[int, int], started: Callable[[int], bool]
    ) -> tuple[Scope, ...]:
        """Return the parts that begin with `stage` and could be served now, outermost first."""
        out = []
        for part in self._parts.get(stage, ()):
            if any(p not in values for p in part.outside) or any(started(s) for s in part.members[1:]):
                continue
            inputs = hashed(_INPUTS, part.scope.inputs, *(values[p] for p in part.outside))
            out.append(replace(part.scope, inputs=inputs))
        return tuple(out)

    def _likelihoods(self) -> None:
        """Give every whole request the negative log of its share among the workload's requests."""
        known = [
            (p.scope.fingerprint, p.scope.inputs) for ps in self._parts.values() for p in ps if _is_whole(p)
        ]
        counts = Counter(known)
        total = max(len(known), 1)
        for parts in self._parts.values():
            for i, part in enumerate(parts):
                if _is_whole(part):
                    share = counts[part.scope.fingerprint, part.scope.inputs] / total
                    nll = -float(log(np.array([share]))[0])
                    parts[i] = replace(part, scope=replace(part.scope, nll=nll))


def _own(stage: int, first: int, inside: set[int], content: list[int], rendering: Rendering) -> Iterator[int]:
    """Yield what is known of a stage before the run: its text, what it reads, and how it hangs on the others.

    A choice enters by its number, whether it is made inside or outside: equal texts that led to other choices (sources
    that contradict each other) never pass for the same part.
    """
    yield rendering.fingerprint[stage]
    yield content[stage]
    yield from rendering.reads[stage]
    for parent, choice in rendering.inputs[stage]:
        yield parent - first if parent in inside else -1
        yield choice or 0


def _is_whole(part: _Part) -> bool:
    return part.scope.kind == "request" and not part.outside
