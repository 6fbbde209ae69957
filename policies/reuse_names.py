"""The names of results: what a result depends on, hashed (DynBranch, "Subgraph reuse names").

A stage's name covers its template, its complete rendered input, and model and execution parameters. A part of a
workflow is named by its template, the values that enter it and its parameters: whatever else changed in the
request, the part is the same. Hosts render and hash; policies choose which names to look for.
"""

from __future__ import annotations

from policies.views import ReuseName, Scope, StageView
from traces import draws

_STAGE, _SCOPE, _PREFIX = 0x51A6E, 0x5C09E, 0x94EF1
_MASK = 0xFFFFFFFFFFFFFFFF


def hashed(kind: int, *parts: int) -> int:
    """Return a 63-bit hash of whole numbers, the same in every process and host."""
    x = kind
    for part in parts:
        x = draws.mix(x ^ (part & _MASK))
    return draws.mix(x) >> 1


def of_stage(view: StageView) -> ReuseName:
    """Return the name of one stage's result."""
    return ReuseName("stage", hashed(_STAGE, view.fingerprint, view.rendered_input, view.parameters))


def of_scope(scope: Scope) -> ReuseName:
    """Return the name of a part of a workflow, or of a whole request."""
    value = hashed(_SCOPE, scope.fingerprint, scope.inputs, scope.parameters, scope.stages)
    return ReuseName(scope.kind, value, scope.stages)


def of_prefix(view: StageView) -> ReuseName:
    """Return the name of a stage's result after an unchanged history of its workflow (0: the history is unknown)."""
    return ReuseName("prefix", hashed(_PREFIX, view.fingerprint, view.prefix_input, view.parameters))
