"""The oracle of branches, for hosts that replay a trace."""

from __future__ import annotations

from policies.views import BranchView
from traces.schema import Workload


class RecordedChoices:
    """The oracle of branches: what the trace says they resolved to."""

    def __init__(self, workload: Workload) -> None:
        b = workload.branches
        assert b is not None
        self._choice: dict[tuple[int, int], tuple[int, int]] = {}
        chosen = b.option_chosen.tolist()
        for option, branch in enumerate(b.option_branch.tolist()):
            if chosen[option]:
                key = (int(b.branch_stage[branch]), int(b.branch_coordinate[branch]))
                self._choice.setdefault(key, (int(b.option_outcome[option]), int(b.option_arguments[option])))

    def choice(self, branch: BranchView) -> tuple[int, int]:
        """Return (outcome, arguments) of the first option taken; (-1, 0) where none was."""
        return self._choice.get((branch.stage, branch.coordinate), (-1, 0))
