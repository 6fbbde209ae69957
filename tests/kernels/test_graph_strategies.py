"""Strategies over graphs: equal tokens whatever is captured, and a fake graph that keeps what CUDA keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from kernel_cases import TINY, config

from kernels.engine import DecodeEngine
from kernels.graphs.fake import FakeRecorder
from kernels.graphs.replayer import Replayer
from kernels.graphs.work import StepWork
from kernels.op import Launch
from kernels.shapes import Bounds
from kernels.step import DecodeStep
from kernels.weights import Weights
from policies.laws import toy_host
from policies.registry import load
from traces.errors import InputError

SMALL = Bounds(batch=2, draft=3, context=24)
HOST = replace(toy_host(), max_num_seqs=2)
SHAPE = replace(TINY, layers=1)
STRATEGIES: list[tuple[str, dict[str, Any]]] = [
    ("eager", {}), ("all_shapes", {"d_max": 3}), ("on_demand", {"d_max": 3}), ("max_pad", {"d_max": 3}),
    ("plan_buffer", {"d_max": 3}), ("plan_buffer", {"d_max": 3, "buckets": 2}),
    ("plan_buffer", {"d_max": 3, "ragged": True}),
]  # fmt: skip
PROMPTS = ([5, 17], [44])
ROUNDS = 3


def engine(name: str, options: dict[str, Any]) -> tuple[DecodeEngine, Replayer]:
    made = config(shape=SHAPE, bounds=SMALL, ragged=bool(options.get("ragged")))
    step = DecodeStep(made, weights=Weights.random(made, 7))
    policy: Any = load("bucketers", name, options)
    replayer = Replayer(step, policy, HOST, FakeRecorder())
    return DecodeEngine(replayer), replayer


def served(name: str, options: dict[str, Any], *, drafts: str) -> tuple[list[list[int]], Replayer]:
    """Tokens of two sequences; drafts are "none", the "truth" of a run before, or "wrong" half-way."""
    run, replayer = engine(name, options)
    numbers = [run.add(p) for p in PROMPTS]
    out: dict[int, list[int]] = {n: [] for n in numbers}
    while min(len(v) for v in out.values()) < ROUNDS:
        proposed: dict[int, list[int]] = {}
        for i, n in enumerate(numbers):
            at = len(out[n])
            if drafts != "none" and at:
                tokens = truth()[i][at : at + 1 + i]
                proposed[n] = [t + 1 if drafts == "wrong" and k else t for k, t in enumerate(tokens)]
        for n, tokens in run.step(proposed).items():
            out[n] += tokens
    assert [run.finish(n) for n in numbers] == list(out.values())
    return [v[:ROUNDS] for v in out.values()], replayer


_TRUTH: list[list[int]] = []


def truth() -> list[list[int]]:
    if not _TRUTH:
        _TRUTH.extend(served("eager", {}, drafts="none")[0])
    return _TRUTH


@pytest.mark.parametrize(
    ("name", "options", "drafts"),
    [(*s, "wrong") for s in STRATEGIES] + [("plan_buffer", {"d_max": 3}, "truth")],
    ids=str,
)
def test_tokens_are_those_of_undrafted_eager_decoding(
    name: str, options: dict[str, Any], drafts: str
) -> None:
    tokens, replayer = served(name, options, drafts=drafts)
    assert tokens == truth()
    account = replayer.account
    if name == "eager":
        assert account.eager > 0 == account.replayed
    else:
        assert account.replayed > 0 == account.eager
    assert account.misses == (len(account.built) if name == "on_demand" else 0)


def test_truth_is_neither_constant_nor_the_prompt() -> None:
    assert len({*truth()[0], *truth()[1]}) > 2


def test_each_strategy_captures_what_its_policy_plans() -> None:
    counts = {
        n: len(engine(n, {"d_max": 3})[1].account.built) for n in ("all_shapes", "max_pad", "plan_buffer")
    }
    assert counts == {"all_shapes": 5, "max_pad": 2, "plan_buffer": 1}
    one = engine("plan_buffer", {"d_max": 3})[1].account.built[0]
    assert (one.rows, one.serving) == (6, False)
    assert one.bytes > 0


def test_a_graph_keeps_scalars_of_its_capture_and_sees_new_contents() -> None:
    """A kernel that takes its extent from the host would go wrong at replay, and the fake shows it."""

    class Fill:
        """Writes ones to the first `extent` words; the launch syntax of a Triton kernel."""

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            def run(out: torch.Tensor, extent: list[int], **_: Any) -> None:
                out[: extent[0]] = 1

            return run

    class FillByPlan:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            def run(out: torch.Tensor, plan: torch.Tensor, **_: Any) -> None:
                out[: int(plan[0])] = 1

            return run

    host_extent = [3]
    plan = torch.tensor([3])
    cheating = Launch("fill", Fill(), (1,), {"extent": host_extent})
    honest = Launch("fill", FillByPlan(), (1,), {})
    a, b = torch.zeros(8), torch.zeros(8)
    graph = FakeRecorder().capture(lambda: (cheating({"out": a}), honest({"out": b, "plan": plan})))  # type: ignore[arg-type, return-value]
    assert int(a.sum()) == int(b.sum()) == 0  # capture runs nothing
    host_extent[0], plan[0] = 5, 5
    graph.replay()
    assert (int(a.sum()), int(b.sum())) == (3, 5)


def test_steps_beyond_the_bounds_are_refused_before_anything_is_launched() -> None:
    _, replayer = engine("plan_buffer", {"d_max": 3})
    work = StepWork((np.array([1, 2]), np.array([3, 4])), np.array([24, 0]), np.zeros((2, 6), dtype=np.int64))
    with pytest.raises(InputError, match="context"):
        replayer.run(work)
    assert replayer.account.replayed == 0


def test_seats_and_blocks_are_given_back() -> None:
    run, _ = engine("eager", {})
    free = run.free_blocks
    numbers = [run.add(p) for p in PROMPTS]
    with pytest.raises(InputError, match="all 2 seats are taken"):
        run.add([1])
    run.step()
    assert run.free_blocks < free
    for n in numbers:
        run.finish(n)
    assert run.free_blocks == free
    with pytest.raises(InputError, match="an empty prompt"):
        run.add([])


def test_padding_beyond_the_widest_query_is_refused_here() -> None:
    run, _ = engine("vllm_ladder", {"max_tokens": 4, "mode": "piecewise"})
    run.add([1, 2, 3])
    with pytest.raises(InputError, match="draft 4; allowed: 0 to the captured 3"):
        run.step()
