"""What drafting costs: each drafter at a full batch over a long history, in every form it has on this machine.

A made-up history: texts that copy from themselves, one a query. The requests of the batch continue them, mixing pieces
of the history with tokens of their own, and the engine is taken to accept what agrees. The structured drafter is timed
compiled (numba), as plain Python on the same arrays, and as the usual automaton of dictionaries. Times are the
CPU's: what else runs on the machine counts little.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from experiments.dictionary_drafter import Dictionaries
from policies import registry
from policies._draft_fast import FAST
from policies._draft_pool import SuffixPool
from policies.api import Draft, Drafter, RequestView
from policies.drafters.structured import Structured
from policies.drafters.suffix import Suffix
from policies.laws import toy_host
from traces import draws

Ids = NDArray[np.uint32]
QUERIES, STEPS, LIMIT, WORDS = 16, 40, 32, 20_000
LEAST_TOKENS = 64 * QUERIES


def text(seed: int, tokens: int, source: Ids | None = None) -> Ids:
    """Return uint32[tokens]: rare and frequent words, with copies of 4 to 35 tokens from `source`, else from itself."""
    fresh = draws.uniform_array(seed, "bench/words", np.arange(tokens)) ** 3
    out = (WORDS * fresh).astype(np.uint32)
    at = 32 if source is None else 2
    while at < tokens:
        bits = draws.bits(seed, "bench/copy", at)
        known = out[:at] if source is None else source
        start = (bits >> 20) % (len(known) - 8)
        piece = known[start : start + 4 + bits % 32][: tokens - at]
        out[at : at + len(piece)] = piece
        at += len(piece) + (bits >> 8) % 6
    return out


@dataclass
class Timed:
    """One drafter with a state and its running requests. Methods mutate."""

    drafter: Drafter[Any]
    state: Any
    requests: int = 0

    def history(self, query: int, ids: Ids) -> None:
        """Let one request of a query write `ids`."""
        number = self.begin(query)
        for start in range(0, len(ids), 1024):
            self.drafter.commit(self.state, number, ids[start : start + 1024])
        self.drafter.finish(self.state, number)

    def begin(self, query: int) -> int:
        """Begin a request; return its number."""
        number, self.requests = self.requests, self.requests + 1
        view = RequestView(number, number, query, 0, 0, 0, query=query)
        self.drafter.begin(self.state, view, np.zeros(0, dtype=np.uint32))
        return number

    def propose(self, numbers: Sequence[int]) -> list[Draft]:
        """Return the batch's drafts."""
        return self.drafter.propose_batch(self.state, numbers, LIMIT)

    def commit(self, numbers: Sequence[int], tokens: Sequence[Ids]) -> None:
        """Tell what was accepted."""
        self.drafter.commit_batch(self.state, numbers, tokens, [None] * len(numbers))

    def memory_bytes(self) -> int:
        """Bytes of the history's arrays, 0 where the drafter keeps none."""
        pool = getattr(self.state, "pool", None) or getattr(self.state, "every", None)
        return pool.memory_bytes if isinstance(pool, SuffixPool) else 0


def contenders() -> dict[str, Callable[[], Timed]]:
    """Return the drafters to time, by the name printed."""
    host = toy_host()
    structured, suffix = Structured(history_tokens=1 << 30), Suffix()
    depth = structured.match_max + structured.longest

    def named(name: str) -> Timed:
        drafter = cast("Drafter[Any]", registry.load("drafters", name))
        return Timed(drafter, drafter.new_state(host))

    def arrays(fast: bool) -> Timed:
        return Timed(structured, structured.state_with(SuffixPool(depth, fast=fast), host))

    def trees(fast: bool) -> Timed:
        return Timed(suffix, suffix.state_with(SuffixPool(suffix.depth, fast=fast)))

    def dictionaries() -> Timed:
        drafter = Dictionaries(structured)
        return Timed(drafter, drafter.new_state(host))

    out: dict[str, Callable[[], Timed]] = {"ngram": lambda: named("ngram")}
    if FAST:
        out["suffix, flat arrays, compiled"] = lambda: trees(True)
        out["structured, flat arrays, compiled"] = lambda: arrays(True)
    out["suffix, flat arrays, plain Python"] = lambda: trees(False)
    out["structured, flat arrays, plain Python"] = lambda: arrays(False)
    out["structured, dictionaries"] = dictionaries
    return out


def measure(
    batch: int, history_tokens: int, names: Sequence[str] | None = None
) -> dict[str, dict[str, float]]:
    """Return {drafter: {"step_ms", "step_ms_p99", "append_us", "mb_per_million_tokens", "drafted", "accepted"}}."""
    texts = [text(q, history_tokens // QUERIES) for q in range(QUERIES)]
    follow = [text(1000 + b, STEPS * (LIMIT + 1), texts[b % QUERIES]) for b in range(batch)]
    made = contenders()
    return {name: _measure(made[name](), texts, follow) for name in names or made}


def _measure(timed: Timed, texts: Sequence[Ids], follow: Sequence[Ids]) -> dict[str, float]:
    warm = Timed(timed.drafter, timed.state)  # compiles what is compiled, in a query of its own
    warm.history(-2, texts[0][:64])
    timed.requests = warm.requests
    began = time.process_time()
    for query, ids in enumerate(texts):
        timed.history(query, ids)
    total = sum(map(len, texts))
    append_us = (time.process_time() - began) / total * 1e6
    held = timed.memory_bytes()
    if not held and isinstance(timed.drafter, Dictionaries):
        held = sum(a.memory_bytes() for a in timed.state["queries"].values())
    numbers = [timed.begin(b % QUERIES) for b in range(len(follow))]
    timed.commit(numbers, [f[:1] for f in follow])
    at = [1] * len(follow)
    spent, drafted, accepted = [], 0, 0
    for _ in range(STEPS):
        began = time.process_time()
        drafts = timed.propose(numbers)
        spent.append(time.process_time() - began)
        tokens = []
        for b, draft in enumerate(drafts):
            n = len(draft.tokens)
            wrong = np.flatnonzero(draft.tokens != follow[b][at[b] : at[b] + n])
            right = int(wrong[0]) if len(wrong) else n
            tokens.append(follow[b][at[b] : at[b] + right + 1])
            at[b] += right + 1
            drafted += n
            accepted += right
        began = time.process_time()
        timed.commit(numbers, tokens)
        spent[-1] += time.process_time() - began
    spent.sort()
    each = STEPS * len(follow)
    return {
        "step_ms": statistics.median(spent) * 1e3,
        "step_ms_p99": spent[min(len(spent) - 1, int(0.99 * len(spent)))] * 1e3,
        "append_us": append_us,
        "mb_per_million_tokens": held / total,
        "drafted": drafted / each,
        "accepted": accepted / each,
    }


def show(drafters: dict[str, dict[str, float]], batch: int, history_tokens: int) -> None:
    """Print what `measure` returned."""
    print(f"{f'drafting, batch of {batch}, {history_tokens:,} tokens of history':<56}", end="")
    print(f"{'ms a step (p99)':>18}{'us a token added':>18}{'MB a million':>14}{'drafted':>9}{'accepted':>9}")
    for name, c in drafters.items():
        held = f"{c['mb_per_million_tokens']:.0f}" if c["mb_per_million_tokens"] else "-"
        step = f"{c['step_ms']:.2f} ({c['step_ms_p99']:.1f})"
        print(
            f"{name:<56}{step:>18}{c['append_us']:>18.1f}{held:>14}{c['drafted']:>9.2f}{c['accepted']:>9.2f}"
        )
