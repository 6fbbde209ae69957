"""The block-hash cache and its scheduler against a model of vLLM V1's, block by block and step by step.

The model keeps what vLLM documents: a queue of free blocks, a map from the chained content of full blocks, blocks
taken from the queue when they are hit, blocks of an ended request appended tail first, and new blocks taken
from the front. Contents are whole token prefixes here, which is what a chain of hashes stands for.
Out of scope, because the simulator differs knowingly (docs/adr/0004): equal blocks in flight twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from policies.api import Access, CacheNode
from policies.evictors.lru import Lru, LruState
from policies.registry import PolicySet
from sim.config import EngineConfig, LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import simulate
from sim.worlds import Dice, flat_profile
from traces.builder import WorkloadBuilder

STEP_PS = 1_000_000
Content = tuple[int, ...]


@dataclass
class Turn:
    stage: int
    tokens: list[int]  # prompt and output
    prompt: int

    def blocks(self, count: int, size: int) -> list[Content]:
        return [tuple(self.tokens[: (i + 1) * size]) for i in range(count)]


@dataclass
class Conversation:
    arrival_ps: int
    turns: list[Turn]


def conversations(dice: Dice, size: int, at_once: bool) -> list[Conversation]:
    """Conversations over few tokens, so that prompts share prefixes; every output is its own."""
    system = [[0] * dice.below(10), [1] * (1 + dice.below(9))]
    out: list[Conversation] = []
    stage = 0
    for c in range(5 + dice.below(10)):
        tokens = list(dice.pick(*system))
        if dice.below(2) and out:
            earlier = out[dice.below(len(out))].turns
            # What an earlier one wrote comes back as a prompt, once it has been written.
            tokens = earlier[0].tokens[: earlier[0].prompt] if at_once else list(earlier[-1].tokens)
        turns = []
        for _ in range(1 + dice.below(2)):
            tokens = tokens + [dice.below(3) for _ in range(1 + dice.below(5))]
            if len(tokens) % size == 0:  # else vLLM computes its last block twice
                tokens.append(3)
            prompt = len(tokens)
            tokens = tokens + [1000 + 100 * stage + k for k in range(1 + dice.below(8))]
            turns.append(Turn(stage, tokens, prompt))
            stage += 1
        arrival = dice.below(31) * STEP_PS // 2 if at_once else c * 200 * STEP_PS
        out.append(Conversation(arrival, turns))
    return out


class Pool:
    """vLLM's pool: `free` holds cached blocks that nobody uses, next victim first; blank blocks go first."""

    def __init__(self, blocks: int) -> None:
        self.blank = blocks
        self.free: list[Content] = []
        self.users: dict[Content, int] = {}
        self.victims: list[Content] = []

    def hit(self, contents: list[Content]) -> int:
        """Take the leading blocks that are cached; return how many."""
        for i, content in enumerate(contents):
            if content not in self.users:
                return i
            if content in self.free:
                self.free.remove(content)
            self.users[content] += 1
        return len(contents)

    def allocate(self, count: int) -> None:
        for _ in range(count):
            if self.blank:
                self.blank -= 1
            else:
                victim = self.free.pop(0)
                del self.users[victim]
                self.victims.append(victim)

    def cache(self, contents: list[Content]) -> None:
        """Name blocks that the caller allocated."""
        for content in contents:
            assert content not in self.users, "equal blocks in flight are out of scope"
            self.users[content] = 1

    def end(self, contents: list[Content], blank: int) -> None:
        self.blank += blank
        for content in reversed(contents):
            self.users[content] -= 1
            if self.users[content] == 0:
                self.free.append(content)


@dataclass
class Running:
    conversation: int
    turn: int
    computed: int
    blocks: int
    cached: int
    generated: int = 0


@dataclass
class Outcome:
    hit_tokens: dict[int, int] = field(default_factory=dict)
    finished_ns: dict[int, int] = field(default_factory=dict)
    victims: list[Content] = field(default_factory=list)


def vllm(load: list[Conversation], size: int, pool_blocks: int, seats: int) -> Outcome:
    """Run the conversations, one step at a time, every prompt in one chunk."""
    pool, out = Pool(pool_blocks), Outcome()
    arrivals = sorted((c.arrival_ps, i) for i, c in enumerate(load))
    waiting: list[tuple[int, int]] = []
    running: list[Running] = []
    now = 0
    while arrivals or waiting or running:
        if not waiting and not running:
            now = max(now, arrivals[0][0])
        while arrivals and arrivals[0][0] <= now:
            waiting.append((arrivals.pop(0)[1], 0))
        for r in running:
            turn = load[r.conversation].turns[r.turn]
            if r.computed % size == 0:
                pool.allocate(1)
                r.blocks += 1
            r.computed += 1
            full = turn.blocks(r.computed // size, size)
            pool.cache(full[r.cached :])
            r.cached = len(full)
        while waiting and len(running) < seats:
            conversation, index = waiting.pop(0)
            turn = load[conversation].turns[index]
            hit = pool.hit(turn.blocks((turn.prompt - 1) // size, size))
            need = -(-turn.prompt // size)
            pool.allocate(need - hit)
            full = turn.blocks(turn.prompt // size, size)
            pool.cache(full[hit:])
            out.hit_tokens[turn.stage] = hit * size
            running.append(Running(conversation, index, turn.prompt, need, len(full)))
        now += STEP_PS
        while arrivals and arrivals[0][0] <= now:
            waiting.append((arrivals.pop(0)[1], 0))
        for r in running:
            r.generated += 1
        for r in [r for r in running if r.generated == _output(load, r)]:
            turns = load[r.conversation].turns
            running.remove(r)
            pool.end(turns[r.turn].blocks(r.cached, size), r.blocks - r.cached)
            out.finished_ns[turns[r.turn].stage] = now // 1000
            if r.turn + 1 < len(turns):
                waiting.append((r.conversation, r.turn + 1))
    out.victims = pool.victims
    return out


def _output(load: list[Conversation], r: Running) -> int:
    turn = load[r.conversation].turns[r.turn]
    return len(turn.tokens) - turn.prompt


@dataclass(frozen=True)
class Recorder(Lru):
    """LRU that writes down which contents leave, in order."""

    size: int = 1
    tokens: dict[int, list[int]] = field(default_factory=dict)
    victims: list[Content] = field(default_factory=list)
    held: dict[int, list[Content]] = field(default_factory=dict)  # node -> contents of its blocks

    def insert(self, state: LruState, node: CacheNode, access: Access) -> None:
        super().insert(state, node, access)
        tokens = self.tokens[access.stage]
        first, last = (node.depth_tokens - node.tokens) // self.size, node.depth_tokens // self.size
        self.held[node.id] = [tuple(tokens[: (i + 1) * self.size]) for i in range(first, last)]

    def split(self, state: LruState, upper: CacheNode, lower: CacheNode) -> None:
        super().split(state, upper, lower)
        blocks = upper.tokens // self.size
        self.held[upper.id], self.held[lower.id] = self.held[lower.id][:blocks], self.held[lower.id][blocks:]

    def shrink(self, state: LruState, node: CacheNode) -> None:
        super().shrink(state, node)
        self._leave(node.id, node.tokens // self.size)

    def remove(self, state: LruState, node: CacheNode) -> None:
        super().remove(state, node)
        self._leave(node.id, 0)

    def _leave(self, node: int, keep: int) -> None:
        self.victims.extend(reversed(self.held[node][keep:]))
        del self.held[node][keep:]


def simulated(
    load: list[Conversation], size: int, pool_blocks: int, seats: int, *, record: bool
) -> tuple[Outcome, list[dict[str, Any]]]:
    builder = WorkloadBuilder("reference", hash_block_tokens=1)
    for i, conversation in enumerate(load):
        builder.workflow(f"c{i}", arrival_ns=conversation.arrival_ps // 1000)
        parents: list[int] = []
        for turn in conversation.turns:
            ids = np.array(turn.tokens, dtype=np.uint64)
            stage = builder.llm(
                turn.prompt,
                len(turn.tokens) - turn.prompt,
                parents=parents,
                prompt_units=ids[: turn.prompt],
                sequence_units=ids,
            )
            assert stage == turn.stage
            parents = [stage]
    evictor = (
        Recorder(size=size, tokens={t.stage: t.tokens for c in load for t in c.turns}) if record else Lru()
    )
    config = SimConfig(
        EngineConfig(block_tokens=size, max_num_seqs=seats, max_num_batched_tokens=10_000),
        load=LoadConfig(loop="open"),
    )
    with MemorySink() as sink:
        simulate(
            builder.build(),
            flat_profile(STEP_PS),
            PolicySet(evictor=evictor),
            config,
            sink,
            kv_blocks=pool_blocks,
            check=True,
        )
    tables = sink.tables()
    rows = tables["requests"].to_pylist()
    assert not any(r["preemptions"] for r in rows)
    outcome = Outcome(
        {r["stage"]: r["gpu_hit_tokens"] for r in rows},
        {r["stage"]: r["finished_ns"] for r in rows},
        evictor.victims if isinstance(evictor, Recorder) else [],
    )
    return outcome, tables["blocks"].to_pylist()


def pool_for(load: list[Conversation], size: int, seats: int, spare: int) -> int:
    """A pool that `seats` requests never exhaust: preemption is not what is compared here."""
    return seats * max(-(-len(t.tokens) // size) for c in load for t in c.turns) + spare


def drawn(seed: int) -> tuple[list[Conversation], int, int, int]:
    """Return (conversations, block size, blocks of the pool, seats) of a seed."""
    dice = Dice(seed, "block-hash reference")
    size, seats, at_once = dice.pick(2, 3, 4), 1 + dice.below(3), bool(dice.below(2))
    load = conversations(dice, size, at_once)
    return load, size, pool_for(load, size, seats, dice.below(5)), seats


@pytest.mark.parametrize("seed", range(150))
def test_hits_and_victims_are_those_of_vllm(seed: int) -> None:
    load, size, blocks, seats = drawn(seed)
    expected = vllm(load, size, blocks, seats)
    outcome, rows = simulated(load, size, blocks, seats, record=True)
    assert outcome == expected
    # Without a witness evictions are carried out in bulk, after the stretch: nothing else may change.
    plain, plain_rows = simulated(load, size, blocks, seats, record=False)
    assert (plain.hit_tokens, plain.finished_ns) == (outcome.hit_tokens, outcome.finished_ns)
    assert plain_rows == rows


def test_the_drawn_loads_hit_and_evict() -> None:
    runs = [vllm(*drawn(seed)) for seed in range(150)]
    assert sum(bool(run.victims) for run in runs) > 75
    assert sum(any(run.hit_tokens.values()) for run in runs) > 75


def test_two_that_overlap_share_a_head_and_the_oldest_tail_leaves_first() -> None:
    system = [0] * 8
    turns = [[Turn(i, [*system, 2, i, *range(1000 + 100 * i, 1010 + 100 * i)], 10)] for i in range(6)]
    load = [Conversation(i * 3 * STEP_PS, t) for i, t in enumerate(turns)]
    expected = vllm(load, 4, 11, 2)
    outcome, _ = simulated(load, 4, 11, 2, record=True)
    assert outcome == expected
    assert sum(expected.hit_tokens.values()) == 5 * 8
    assert len(expected.victims) == 4
