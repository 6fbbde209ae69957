"""Prefix identity of prompts, interned into one compressed tree.

A trace states identity as block hashes or token ids. Comparing thousands of them at every lookup is what makes
simulators slow, and all the equality there is can be found once: `PrefixTree` holds each maximal run of
tokens that the same set of sequences passes through as one segment, and a prompt is the path from the
root to its segment. Equality of prefixes is then equality of segment ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class PrefixTree:
    """Compressed prefix tree over all sequences of a workload. Parents precede children.

    parent_segment  int32[n]: segment above, -1 at a root
    start_tokens    int32[n]: depth at which the segment begins; equals the parent's end (0 at a root)
    end_tokens      int32[n]: depth at which it ends, exclusive; > start_tokens
    """

    parent_segment: Int32
    start_tokens: Int32
    end_tokens: Int32

    def __len__(self) -> int:
        return len(self.parent_segment)

    @staticmethod
    def empty() -> PrefixTree:
        """Return the tree of a workload whose prompts share nothing."""
        none = np.zeros(0, dtype=np.int32)
        return PrefixTree(none, none, none)

    def path(self, segment: int) -> list[int]:
        """Return the segments from the root down to `segment`; empty for -1. Does not mutate."""
        out: list[int] = []
        while segment >= 0:
            out.append(segment)
            segment = int(self.parent_segment[segment])
        return out[::-1]

    def errors(self) -> list[str]:
        """Return what is inconsistent, one line each; empty when the tree is sound."""
        out: list[str] = []
        n = len(self)
        if not (len(self.start_tokens) == len(self.end_tokens) == n):
            return ["prefix tree: columns of unequal length"]
        if n == 0:
            return out
        index = np.arange(n)
        if np.any(self.parent_segment >= index) or np.any(self.parent_segment < -1):
            out.append("prefix tree: field 'parent_segment' must be -1 or an earlier segment")
            return out
        expect = np.where(self.parent_segment < 0, 0, self.end_tokens[np.maximum(self.parent_segment, 0)])
        if np.any(self.start_tokens != expect):
            out.append("prefix tree: field 'start_tokens' must equal the parent's 'end_tokens'")
        if np.any(self.end_tokens <= self.start_tokens):
            out.append("prefix tree: field 'end_tokens' must exceed 'start_tokens'")
        return out


def intern(sequences: Sequence[NDArray[np.uint64]], unit_tokens: int) -> tuple[PrefixTree, Int32]:
    """Intern sequences of units (block hashes, or token ids with `unit_tokens=1`).

    Two sequences share a prefix of k units when their first k units are equal, so local and chained
    hashes serve alike. Every sequence ends at a segment boundary.

    Returns (tree, segment): `segment[i]` is the last segment of sequence i, -1 when it is empty.
    Cost: one sort of the active sequences per depth, O(total units log sequences).
    """
    n = len(sequences)
    lengths = np.array([len(s) for s in sequences], dtype=np.int64)
    flat = (
        np.concatenate([np.asarray(s, dtype=np.uint64) for s in sequences]) if n else np.zeros(0, np.uint64)
    )
    offset = np.concatenate([[0], np.cumsum(lengths)])[:-1] if n else np.zeros(0, np.int64)
    # `group` is the dense id of the prefix a sequence has so far; at each depth it is refined by the next unit.
    # Active sequences are ordered longest first, so those that still have a unit at `depth` are a leading slice.
    order = np.argsort(-lengths, kind="stable")
    group = np.zeros(n, dtype=np.int64)
    segment = np.full(n, -1, dtype=np.int64)  # segment each sequence is in now
    parents: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    count = np.searchsorted(-lengths[order], -np.arange(lengths.max() if n else 0), side="left")
    ended = np.zeros(n, dtype=bool)
    for depth in range(len(count)):
        active = order[: count[depth]]
        unit = flat[offset[active] + depth]
        g = group[active]
        by = np.lexsort((unit, g))
        gs, us = g[by], unit[by]
        new = np.ones(len(by), dtype=bool)
        new[1:] = (gs[1:] != gs[:-1]) | (us[1:] != us[:-1])
        dense = np.cumsum(new) - 1
        first = np.flatnonzero(new)
        group_first = np.ones(len(by), dtype=bool)
        group_first[1:] = gs[1:] != gs[:-1]
        children_of_group = np.bincount(np.cumsum(group_first) - 1, weights=new.astype(np.float64))
        splits = children_of_group[np.cumsum(group_first) - 1][first] > 1
        ends_here = _any_ended(group, ended, gs[first])
        rep_segment = segment[active[by[first]]]
        child = np.empty(len(first), dtype=np.int64)
        for k in range(len(first)):
            old = int(rep_segment[k])
            if old < 0 or splits[k] or ends_here[k]:
                parents.append(old)
                starts.append(depth)
                ends.append(depth + 1)
                child[k] = len(parents) - 1
            else:
                ends[old] = depth + 1
                child[k] = old
        segment[active[by]] = child[dense]
        group[active[by]] = dense
        ended[:] = False
        ended[active] = lengths[active] == depth + 1
        group[~np.isin(np.arange(n), active)] = -1
    tree = PrefixTree(
        np.array(parents, dtype=np.int32),
        np.array(starts, dtype=np.int32) * np.int32(unit_tokens),
        np.array(ends, dtype=np.int32) * np.int32(unit_tokens),
    )
    return tree, segment.astype(np.int32)


def _any_ended(group: Int64, ended: NDArray[np.bool_], groups: Int64) -> NDArray[np.bool_]:
    """Say for each of `groups` whether some sequence of it ended at the depth just passed."""
    if not ended.any():
        return np.zeros(len(groups), dtype=bool)
    return np.isin(groups, group[ended])
