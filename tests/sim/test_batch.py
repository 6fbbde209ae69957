"""The decode batch: its counters against sequences counted one by one."""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sim.batch import DecodeBatch
from sim.request import Request


def decoding(stage: int, prompt: int, output: int) -> Request:
    request = Request(stage, 0, 0, prompt, output, 0, 0)
    request.sequence = stage
    request.computed_tokens = prompt
    request.generated = 1
    return request


class Counted:
    """The same batch, one token at a time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.kv: dict[int, int] = {}
        self.left: dict[int, int] = {}

    def needs(self) -> int:
        return sum(kv % self.size == 0 for kv in self.kv.values())

    def step(self) -> list[int]:
        for stage in self.kv:
            self.kv[stage] += 1
            self.left[stage] -= 1
        ended = sorted(s for s, left in self.left.items() if left == 0)
        for stage in ended:
            del self.kv[stage], self.left[stage]
        return ended


@settings(max_examples=80, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(
    st.sampled_from((1, 3, 16)),
    st.lists(st.tuples(st.integers(1, 50), st.integers(2, 40), st.integers(0, 12)), min_size=1, max_size=12),
    st.integers(0, 3),
)
def test_counters_are_those_of_single_sequences(
    size: int, joins: list[tuple[int, int, int]], leaver: int
) -> None:
    batch, counted = DecodeBatch(size), Counted(size)
    requests: list[Request] = []
    for stage, (prompt, output, steps) in enumerate(joins):
        request = decoding(stage, prompt, output)
        requests.append(request)
        batch.join(request)
        counted.kv[stage], counted.left[stage] = prompt, output - 1
        if stage == leaver + 2 and leaver in counted.kv:
            left = requests[leaver]
            batch.leave(left)
            assert left.computed_tokens == counted.kv.pop(leaver)
            assert left.output_tokens - left.generated == counted.left.pop(leaver)
            left.version += 1
        for _ in range(steps):
            assert batch.seqs == len(counted.kv)
            assert batch.context_tokens == sum(kv + 1 for kv in counted.kv.values())
            assert batch.new_blocks(1) == counted.needs()
            if counted.left:
                assert batch.steps_to_finish() == min(counted.left.values())
            batch.advance(1)
            ended = counted.step()
            assert [r.stage for r in batch.pop_finished()] == ended
            for stage_ended in ended:
                assert requests[stage_ended].generated == requests[stage_ended].output_tokens


@settings(max_examples=80, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(
    st.sampled_from((1, 3, 16)),
    st.lists(st.integers(1, 60), min_size=1, max_size=9),
    st.integers(0, 40),
    st.integers(0, 60),
)
def test_a_stretch_allocates_what_its_steps_would(
    size: int, prompts: list[int], blocks: int, limit: int
) -> None:
    batch = DecodeBatch(size)
    for stage, prompt in enumerate(prompts):
        batch.join(decoding(stage, prompt, 10_000))
    total, allocated = 0, [0]
    for step in range(limit):
        total += sum((prompt + step) % size == 0 for prompt in prompts)
        allocated.append(total)
    assert [batch.new_blocks(n) for n in range(limit + 1)] == allocated
    assert batch.steps_within(blocks, limit) == max(n for n in range(limit + 1) if allocated[n] <= blocks)


def test_an_empty_batch_needs_nothing_and_never_finishes() -> None:
    batch = DecodeBatch(16)
    assert batch.steps_within(0, 7) == 7
    assert batch.steps_to_finish() > 10**12
    assert batch.pop_finished() == []
