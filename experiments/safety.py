"""`python -m experiments fuzz --stages N`: speculation and reuse over random branches until N stages have run.

Each world is a number, as for the fuzzer; here it is run once, without checks of the engines' books, which is fast.
Every result that is served, joined or promoted is compared with what would have been computed.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from policies.guards import Guards
from sim.branch_worlds import branch_world
from sim.log import MemorySink
from sim.run import simulate

WORKFLOWS = 40


@dataclass(frozen=True)
class Safety:
    """What so many stages came to. stages: canonical ones and those of fills; unsafe_seeds: worlds that replay one."""

    worlds: int
    stages: int
    spliced: int
    unsafe: int
    unsafe_seeds: tuple[int, ...]
    fates: Counter[str]


def search(stages: int, start: int = 0, guards: Guards | None = None, *, stop: bool = False) -> Safety:
    """Run worlds from seed `start` until `stages` stages have run, or (with `stop`) one splice was unsafe."""
    seen = spliced = unsafe = 0
    seeds: list[int] = []
    fates: Counter[str] = Counter()
    seed = start
    while seen < stages and not (stop and unsafe):
        world = branch_world(seed, WORKFLOWS, parameters=True)
        with MemorySink() as sink:
            stats = simulate(
                world.workload, world.profile, world.policies, world.config, sink,
                kv_blocks=world.kv_blocks, guards=guards,
            )  # fmt: skip
        tables = sink.tables()
        seen += sum(tables["workflows"]["stages"].to_pylist()) + tables["fills"].num_rows
        fates.update(tables["fills"]["fate"].to_pylist())
        spliced += stats.spliced
        unsafe += stats.unsafe
        if stats.unsafe:
            seeds.append(seed)
        seed += 1
    return Safety(seed - start, seen, spliced, unsafe, tuple(seeds), fates)


def report(stages: int, start: int) -> int:
    """Search, print what was found, return the exit status: 1 if a splice was unsafe."""
    begin = time.monotonic()
    found = search(stages, start)
    took = time.monotonic() - begin
    print(
        f"{found.stages} stages in {found.worlds} worlds (seeds {start} to {start + found.worlds - 1}), {took:.1f} s: "
        f"{found.unsafe} unsafe of {found.spliced} splices"
    )
    print("\n".join(f"{n:8d}  fill stages {fate}" for fate, n in sorted(found.fates.items())))
    for seed in found.unsafe_seeds[:10]:
        print(f"UNSAFE: python -m experiments fuzz --stages 1 --start {seed}")
    return 1 if found.unsafe else 0
