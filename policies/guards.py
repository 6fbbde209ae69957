"""The guards that make reuse and promotion exact, each with a switch that only tests turn.

With any one of them off, a wrong or unreadable result gets spliced sooner or later; the tests count how soon.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from policies.views import StageView


@dataclass(frozen=True)
class Guards:
    """All on outside of tests.

    parameters      names cover model and execution parameters
    version_check   a result enters the store, and a fill is promoted, only while every version it read is current
    write_cascade   a write removes what read the key, whole subgraphs with a reading stage inside included
    loser_deletion  fills whose choice was not taken die at the resolution
    read_stamps     a result carries the versions of the moment it read, not those of its completion: a write during
                    the execution is seen
    """

    parameters: bool = True
    version_check: bool = True
    write_cascade: bool = True
    loser_deletion: bool = True
    read_stamps: bool = True

    def named(self, view: StageView) -> StageView:
        """Return the view as names see it: itself, unless parameters are to be ignored."""
        if self.parameters:
            return view
        scopes = tuple(replace(scope, parameters=0) for scope in view.scopes)
        return replace(view, parameters=0, scopes=scopes)
