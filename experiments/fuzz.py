"""`python -m experiments fuzz`: random workloads, configurations, policies and faults against the invariants.

A world is one number. It is simulated with the books checked at every step, and again step by step, which must give
the same tables; then the laws of `experiments.fuzz_laws` are checked. What fails prints the number that
replays it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import pyarrow.compute as pc

from experiments.fuzz_laws import Tables, check_log
from experiments.fuzz_worlds import fuzz_world, policy_names
from experiments.safety import report
from policies.api import Policy
from policies.registry import name_of
from sim.run import RunStats
from sim.worlds import World
from traces.errors import InputError
from traces.tables import CACHE_EVENTS, REQUEST_STATUS

WORLD_LIMIT_S = 120
_MOST_FAILURES = 20


class Hang(Exception):
    """A world took longer than `WORLD_LIMIT_S`."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {message} (see {self.prog} --help)")


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status: 0 clean, 1 a law was broken."""
    parser = _Parser(prog="python -m experiments fuzz", description=__doc__, allow_abbrev=False)
    parser.add_argument("--seconds", type=float, help="fuzz for so long (default 10)")
    parser.add_argument("--start", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--seed", type=int, help="replay the world of this seed and stop")
    parser.add_argument(
        "--stages", type=int, help="look only for unsafe splices, until so many stages have run"
    )
    a = parser.parse_args(list(argv))
    if a.stages is not None:
        if a.stages < 1 or a.seed is not None or a.seconds is not None:
            raise InputError(f"--stages {a.stages}: expected at least 1, without --seed and --seconds")
        return report(a.stages, a.start)
    if a.seconds is not None and not 0 < a.seconds < 1e7:
        raise InputError(f"--seconds {a.seconds}: expected more than 0")
    if a.seed is not None and a.seconds is not None:
        raise InputError("--seed replays one world, --seconds goes through many; give one of them")
    if a.seed is not None:
        return fuzz(a.seed, count=1)
    return fuzz(a.start, seconds=10.0 if a.seconds is None else a.seconds)


def fuzz(start: int, *, seconds: float | None = None, count: int | None = None) -> int:
    """Check the worlds from seed `start` on, for so many seconds or so many worlds; print what was found.

    Stops early after 20 failures. Returns the exit status.
    """
    features: Counter[str] = Counter()
    failures = worlds = 0
    begin = time.monotonic()
    seed = start
    while failures < _MOST_FAILURES:
        if count is not None and worlds >= count:
            break
        if seconds is not None and time.monotonic() - begin >= seconds:
            break
        line = check_seed(seed, features)
        worlds += 1
        if line:
            failures += 1
            print(line, flush=True)
        elif sys.stderr.isatty() and worlds % 50 == 0:
            print(f"\r{worlds} worlds", end="", file=sys.stderr, flush=True)
        seed += 1
    elapsed = time.monotonic() - begin
    if sys.stderr.isatty() and worlds >= 50:
        print("\r", end="", file=sys.stderr)
    rate = worlds / elapsed if elapsed > 0 else 0.0
    print(
        f"{worlds} worlds (seeds {start} to {seed - 1}) in {elapsed:.1f} s, {rate:.1f} worlds/s, {failures} failed"
    )
    print("\n".join(f"{n:8d}  {feature}" for feature, n in sorted(features.items())))
    return 1 if failures else 0


def check_seed(seed: int, features: Counter[str] | None = None) -> str | None:
    """Check one world; return None, or one line: how to replay it, its policies, what went wrong.

    Counts in `features` what the world had and what happened in it.
    """
    names = "(the world could not be made)"
    try:
        world = fuzz_world(seed)
        names = policy_names(world)
        with _time_limit(WORLD_LIMIT_S):
            stats, tables = check_world(world)
    except Exception as e:
        text = " ".join(str(e).split()) or _place(e)
        return f"FAILED: python -m experiments fuzz --seed {seed} [{names}]: {type(e).__name__}: {text}"
    if features is not None:
        features.update(world_features(world, stats, tables))
    return None


def check_world(world: World) -> tuple[RunStats, Tables]:
    """Simulate with and without fast-forward and check every law; raises AssertionError."""
    stats, tables = world.run(check=True)
    single, steps = world.run(check=True, fast_forward=False)
    for name, table in tables.items():
        assert table.equals(steps[name]), f"fast-forward changes table {name!r}"
    assert (stats.steps, stats.simulated_ns, stats.pcie_bytes) == (
        single.steps, single.simulated_ns, single.pcie_bytes,
    ), "fast-forward changes the statistics"  # fmt: skip
    check_log(world, stats, tables)
    return stats, tables


def world_features(world: World, stats: RunStats, tables: Tables) -> set[str]:
    """Return what the world had (`evictor=lru`, `fault: pause`) and what happened in it (`seen: preemption`)."""
    config, requests, policies = world.config, tables["requests"], world.policies
    out = {
        f"evictor={name_of(policies.evictor)}",
        f"router={name_of(policies.router)}",
        f"bucketer={name_of(policies.bucketer)}",
        f"predictor={name_of(policies.predictor)}",
        f"prefetcher={name_of(policies.prefetcher)}",
        f"prefix_cache={config.engine.prefix_cache}",
        f"queue={config.engine.queue}",
        f"loop={config.load.loop}",
        f"replicas={config.replicas}",
    }
    arrivals = world.workload.workflow_arrival_ns
    for given, name in (
        (policies.drafter.active(), "drafting"),
        (config.fault.pause_for_s > 0, "fault: replica pauses"),
        (config.load.horizon_s is not None, "fault: horizon"),
        (
            bool((world.workload.output_tokens[world.workload.prompt_tokens > 0] == 0).any()),
            "fault: empty outputs",
        ),
        (
            arrivals is not None and len(set(arrivals.tolist())) < len(arrivals),
            "fault: simultaneous arrivals",
        ),
        (int(config.host_tier.ratio * world.kv_blocks) > 0, f"host tier, {config.host_tier.write}"),
        (stats.fast_forward_ratio > 0, "seen: fast-forward"),
        (stats.pcie_bytes > 0, "seen: host copies"),
        (world.workload.branches is not None, f"branches, gate={_short(policies.gate)}"),
        (stats.filled > 0, "seen: fills"),
        (stats.spliced > 0, "seen: spliced results"),
        (stats.incomplete > stats.rejected, "seen: unfinished workflows"),
    ):
        if given:
            out.add(name)
    for column in (
        "preemptions",
        "gpu_hit_tokens",
        "host_hit_tokens",
        "recomputed_tokens",
        "accepted_tokens",
    ):
        if pc.sum(requests[column]).as_py():
            out.add(f"seen: {column}")
    if CACHE_EVENTS.index("prefetch") in tables["blocks"]["event"].to_pylist():
        out.add("seen: prefetching")
    if REQUEST_STATUS.index("rejected") in requests["status"].to_pylist():
        out.add("seen: rejection")
    return out


def _short(policy: Policy[Any]) -> str:
    return type(policy).__name__.lower()


def _place(error: BaseException) -> str:
    """Return `file:line` where an error without words was raised."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "no message" if at is None else f"at {at.tb_frame.f_code.co_filename}:{at.tb_lineno}"


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise Hang in the block after `seconds`; no limit outside the main thread, where no signal arrives."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(_: int, __: FrameType | None) -> None:
        raise Hang(f"still running after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
