"""A pool of token histories: one suffix automaton each, all in one set of flat arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies import _draft_automaton as flat
from policies._draft_fast import FAST, plain, views

Int32 = NDArray[np.int32]
LEAST_DEAD_TOKENS = 4096  # a rebuild for fewer is not worth it
_LOAD = 0.7  # of the hash table, at most
_START = (
    ("states", flat.STATE),
    ("edges", flat.EDGE),
    ("tokens", flat.PLACE),
    ("runs", flat.ORIGIN),
    ("cursors", flat.CURSOR),
)


@dataclass(slots=True, eq=False)
class History:
    """What is drafted from: a root of the automaton. Its pool keeps the number right."""

    root: int


@dataclass(slots=True, eq=False)
class Run:
    """A sequence of tokens in a history; `cursor` is -1 once it is closed. Its pool keeps the numbers right."""

    history: History
    cursor: int
    number: int

    @property
    def growing(self) -> bool:
        """Whether it is not closed yet."""
        return self.cursor >= 0


class SuffixPool:
    """Histories and sequences of tokens. Every method but the properties and `reach` mutates.

    depth: the longest string whose occurrences are counted. fast: False runs plain Python even where numba is
    installed; results are equal. `arrays` are what the functions of `_draft_automaton` take, in their order.
    """

    def __init__(self, depth: int, *, fast: bool = FAST) -> None:
        self.fast = fast and FAST
        self._function: Any = flat.append if self.fast else plain(flat.append)
        self.depth = depth
        self._histories: dict[int, History] = {}
        self._one = np.zeros(1, dtype=np.int32)
        self._sequences: dict[int, Run] = {}  # by run: those that grow or may be forgotten
        self._clear()

    @property
    def tokens(self) -> int:
        """Tokens held, forgotten ones included."""
        return int(self._registers[flat.N_TOKENS])

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays, idle space included."""
        return sum(a.nbytes for a in (*self._flat.values(), self._slots))

    def history(self) -> History:
        """Return a new, empty history."""
        root = int(self._registers[flat.N_STATES])
        self._reserve("states", root + 1)
        self._registers[flat.N_STATES] = root + 1
        row = self._flat["states"][root * flat.STATE : (root + 1) * flat.STATE]
        row[:] = 0
        row[flat.LINK] = row[flat.TARGET] = row[flat.MORE] = -1
        self._histories[root] = History(root)
        return self._histories[root]

    def sequence(self, history: History) -> Run:
        """Return a new, empty sequence of a history; it grows until it is closed."""
        if self._free:
            cursor = self._free.pop()
        else:
            cursor = self._n_cursors
            self._n_cursors += 1
            self._reserve("cursors", cursor + 1)
        run = self._n_runs
        self._n_runs += 1
        self._reserve("runs", run + 1)
        root = history.root
        self._flat["cursors"][cursor * flat.CURSOR : (cursor + 1) * flat.CURSOR] = (
            root,
            root,
            root,
            0,
            -1,
            run,
        )
        self._flat["runs"][run * flat.ORIGIN : (run + 1) * flat.ORIGIN] = (-1, root)
        self._sequences[run] = made = Run(history, cursor, run)
        return made

    def close(self, sequence: Run, *, forgettable: bool = False) -> None:
        """End a sequence; its tokens stay. Only a forgettable one can be given to `forget` later."""
        self._free.append(sequence.cursor)
        sequence.cursor = -1
        if not forgettable:
            del self._sequences[sequence.number]

    def reach(self, sequence: Run) -> int:
        """Return how many tokens the sequence has, at most `depth`. Does not mutate."""
        return int(self._flat["cursors"][sequence.cursor * flat.CURSOR + flat.REACH])

    def append(self, sequence: Run, tokens: NDArray[np.uint32]) -> None:
        """Append tokens to a growing sequence."""
        if len(tokens):
            self._one[0] = sequence.cursor
            self._append(self._one, tokens)

    def append_parts(self, cursors: list[int], parts: list[NDArray[np.uint32]]) -> None:
        """Append parts[i] to the sequence with cursor cursors[i], in this order."""
        if len(cursors) == 1:
            self._one[0] = cursors[0]
            self._append(self._one, parts[0])
        elif cursors:
            ids = np.repeat(np.array(cursors, dtype=np.int32), [len(p) for p in parts])
            self._append(ids, np.concatenate(parts))

    def forget(self, sequence: Run) -> None:
        """Uncount a closed sequence. What is forgotten leaves memory once it outweighs the rest."""
        function: Any = flat.forget if self.fast else plain(flat.forget)
        S, E, H, T, G, _, R = self.arrays
        self._dead_tokens += function(S, E, H, T, G, R, sequence.number)
        self._dead_runs.append(sequence.number)
        del self._sequences[sequence.number]
        if self._dead_tokens > max(self.tokens // 2, LEAST_DEAD_TOKENS):
            alive = np.ones(self._n_runs, dtype=bool)
            alive[self._dead_runs] = False
            self._rebuild(alive)

    def trim(self, tokens: int) -> None:
        """Keep the newest sequences, of `tokens` tokens in all, and those that may still grow or be forgotten.

        A history that nothing is left of is gone: its root is -1.
        """
        runs = self._flat["tokens"][: self.tokens * flat.PLACE].reshape(-1, flat.PLACE)[:, flat.RUN]
        size = np.bincount(runs, minlength=self._n_runs)
        alive = np.cumsum(size[::-1])[::-1] <= tokens
        alive[self._dead_runs] = False
        alive[list(self._sequences)] = True
        self._rebuild(alive)

    def _append(self, cursors: Int32, tokens: NDArray[np.uint32]) -> None:
        """Append tokens[i] to the sequence with cursor cursors[i], or all to cursors[0] where there is one."""
        n = len(tokens)
        if self.tokens + n > self._room["tokens"]:
            self._reserve("tokens", self.tokens + n)
        if tokens.dtype != np.uint32 or not tokens.flags.c_contiguous:
            tokens = np.ascontiguousarray(tokens, dtype=np.uint32)
        given = views(self.fast, cursors, tokens.view(np.int32))
        done, room = 0, self._room
        while True:
            done = self._function(*self.arrays, *given, done, room["states"], room["edges"])
            if done == n:
                return
            rows = self._flat
            c = int(cursors[done if len(cursors) > 1 else 0]) * flat.CURSOR
            last, root = (int(rows["cursors"][c + k]) * flat.STATE for k in (flat.LAST, flat.ROOT))
            spare = int(rows["states"][last + flat.LEN]) + int(rows["states"][root + flat.SEEN]) + 2
            self._reserve("states", int(self._registers[flat.N_STATES]) + flat.SPARE_STATES)
            self._reserve("edges", int(self._registers[flat.N_EDGES]) + spare)
            room = self._room

    def _clear(self) -> None:
        self._flat = {name: np.zeros(64 * width, dtype=np.int32) for name, width in _START}
        self._slots = np.full(128, -1, dtype=np.int32)
        self._registers = np.zeros(flat.REGISTERS, dtype=np.int64)
        self._registers[flat.DEPTH] = self.depth
        self._n_runs: int = 0
        self._n_cursors: int = 0
        self._dead_tokens: int = 0
        self._free: list[int] = []
        self._dead_runs: list[int] = []
        self._bind()

    def _reserve(self, name: str, rows: int) -> None:
        """Make room for `rows` rows; arrays grow by a quarter, which is O(1) a row."""
        old, width = self._flat[name], dict(_START)[name]
        if len(old) >= rows * width:
            return
        rows = max(rows, len(old) // width * 5 // 4)
        self._flat[name] = np.zeros(rows * width, dtype=np.int32)
        self._flat[name][: len(old)] = old
        if name == "edges" and rows > len(self._slots) * _LOAD:
            size = len(self._slots)
            while rows > size * _LOAD:
                size *= 2
            self._slots = np.full(size, -1, dtype=np.int32)
            self._bind()
            function: Any = flat.rehash if self.fast else plain(flat.rehash)
            function(self.arrays[1], self.arrays[2], int(self._registers[flat.N_EDGES]))
        self._bind()

    def _bind(self) -> None:
        f = self._flat
        arrays: tuple[Any, ...] = (
            f["states"], f["edges"], self._slots, f["tokens"], f["runs"], f["cursors"], self._registers,
        )  # fmt: skip
        self.arrays = views(self.fast, *arrays)
        self._room = {name: len(f[name]) // width for name, width in _START}

    def _rebuild(self, alive: NDArray[np.bool_]) -> None:
        """Enter the tokens of the runs that are alive anew, in the order in which they came."""
        tokens = self._flat["tokens"][: self.tokens * flat.PLACE].reshape(-1, flat.PLACE)
        kept = tokens[alive[tokens[:, flat.RUN]]]
        under = self._flat["runs"][flat.UNDER : self._n_runs * flat.ORIGIN : flat.ORIGIN]
        histories, sequences = self._histories, self._sequences
        self._histories, self._sequences = {}, {}
        self._clear()
        used = {int(under[run]) for run in {*np.unique(kept[:, flat.RUN]).tolist(), *sequences}}
        for root, history in histories.items():
            if root in used:
                history.root = self.history().root
                self._histories[history.root] = history
            else:
                history.root = -1
        made: dict[int, Run] = {}
        for run in sorted({*np.unique(kept[:, flat.RUN]).tolist(), *sequences}):
            made[run] = self.sequence(histories[int(under[run])])
        cursor = np.zeros(len(alive), dtype=np.int32)
        for run, new in made.items():
            cursor[run] = new.cursor
        if len(kept):
            words = np.ascontiguousarray(kept[:, flat.WORD]).view(np.uint32)
            self._append(cursor[kept[:, flat.RUN]], words)
        for run, new in made.items():
            old = sequences.get(run)
            if old is None or old.cursor < 0:
                self.close(new, forgettable=old is not None)
            if old is not None:
                old.cursor, old.number = new.cursor, new.number
                self._sequences[new.number] = old
