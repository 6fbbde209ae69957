"""How often what was chosen is among the best that a drafter could name, from the scores that the workload holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from traces.branches import Branches

RANKS = (1, 2, 3, 8)


def coverage(b: Branches) -> dict[str, Any]:
    """Return counts, and for each drafter the share of branches with a taken path whose choice is among its k best.

    "choice" counts the outcome, "choice and arguments" the very option: only that can be promoted. Ranks are by
    score, ties in the template's order. Branches of which nothing was taken that runs stages are left out (what is
    chosen there has no early execution), and so are those below an option that was not taken. "most frequent" ranks
    outcomes by how often the coordinate chose them in this very workload: a ceiling for any drafter that knows
    nothing but that.
    """
    taken, branch = b.option_taken, b.option_branch
    has_path = np.diff(b.option_stage_ptr) > 0
    live = np.bincount(branch[taken & has_path], minlength=b.n_branches) > 0
    recorded = np.bincount(branch[taken], minlength=b.n_branches) > 0
    offered = b.option_offered
    out: dict[str, Any] = {
        "branches": int(np.count_nonzero(recorded)),
        "branches_with_a_taken_path": int(np.count_nonzero(live)),
        "open_space": int(np.count_nonzero(b.branch_open_space & recorded)),
        "several_valid": int(np.count_nonzero(~b.branch_exclusive & recorded)),
        "options_offered_mean": _mean(np.bincount(branch[offered], minlength=b.n_branches)[recorded]),
        "chosen_options_mean": _mean(np.bincount(branch[taken], minlength=b.n_branches)[live]),
        "most_frequent_outcome": _frequent(b, live),
        "drafters": {},
    }
    for kind, score in zip(b.drafters, b.option_score, strict=True):
        named = np.bincount(branch[np.isfinite(score)], minlength=b.n_branches) > 0
        found = {"choice": np.zeros(len(RANKS)), "choice and arguments": np.zeros(len(RANKS))}
        for n in np.flatnonzero(live).tolist():
            rows = np.arange(b.option_ptr[n], b.option_ptr[n + 1])
            best = rows[np.isfinite(score[rows])]
            best = best[np.argsort(-score[best], kind="stable")]
            wanted = rows[taken[rows]]
            for i, k in enumerate(RANKS):
                top = best[:k]
                found["choice"][i] += np.mean(np.isin(b.option_outcome[wanted], b.option_outcome[top]))
                found["choice and arguments"][i] += np.mean(np.isin(wanted, top))
        total = max(int(np.count_nonzero(live)), 1)
        out["drafters"][kind] = {
            "branches_it_names_something_at": int(np.count_nonzero(named & live)),
            **{
                what: {str(k): round(float(n) / total, 4) for k, n in zip(RANKS, counts, strict=True)}
                for what, counts in found.items()
            },
        }
    return out


def _frequent(b: Branches, live: np.ndarray[Any, np.dtype[np.bool_]]) -> dict[str, float]:
    rows = b.option_taken & live[b.option_branch]
    pairs = np.stack([b.branch_coordinate[b.option_branch[rows]], b.option_outcome[rows]], axis=1)
    if not len(pairs):
        return {}
    kinds, count = np.unique(pairs, axis=0, return_counts=True)
    place = np.empty(len(kinds), dtype=np.int64)
    for coordinate in np.unique(kinds[:, 0]):
        here = np.flatnonzero(kinds[:, 0] == coordinate)
        place[here[np.argsort(-count[here], kind="stable")]] = np.arange(len(here))
    return {str(k): round(float(count[place < k].sum() / count.sum()), 4) for k in RANKS}


def _mean(counts: np.ndarray[Any, np.dtype[np.int64]]) -> float:
    return round(float(counts.mean()), 3) if len(counts) else 0.0
