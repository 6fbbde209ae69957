"""Laws of the families that decide inside an engine step: drafters, budgets, bucketers, prefetchers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies._toy_tree import Meter, ToyNode
from policies.api import Bucketer, Budget, Drafter, HostInfo, Prefetcher
from policies.views import BatchShape, BatchView, Draft, Forecast, Proposals, RequestView
from traces import draws


def check_drafter(policy: Drafter[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """At most `limit` tokens, as many confidences in [0, 1] that descend, counts that agree; equal reruns.

    Two requests of one stage live at a time (two fills, or no trace), and their numbers do not matter.
    """
    for seed in seeds:
        first = _drafts(policy, host, seed, 0, 1)
        assert _drafts(policy, host, seed, 0, 1) == first, f"seed {seed}: equal histories, other drafts"
        assert _drafts(policy, host, seed, 900, 7) == first, (
            f"seed {seed}: the drafts depend on the requests' numbers, which differ between hosts"
        )
        assert _drafts(policy, host, seed, 0, 1, batch=True) == first, (
            f"seed {seed}: propose_batch and commit_batch differ from propose and commit"
        )
    for seqs, drafted, context in ((0, 0, 0), (1, 0, 100), (8, 40, 4000)):
        cost = policy.cost_ps(host.profile, seqs, drafted, context)
        assert isinstance(cost, int), f"cost_ps returned {cost!r}, expected whole picoseconds"
        assert cost >= 0, f"cost_ps returned {cost}"
    memory = policy.memory_bytes(host.profile)
    assert len(memory) == 2, f"memory_bytes returned {memory!r}, expected weights and KV of a token"
    assert all(isinstance(m, int) and m >= 0 for m in memory), f"memory_bytes returned {memory!r}"
    assert all(0 <= rate <= 1 for rate in policy.acceptance()), "acceptance() has a rate outside [0, 1]"
    assert min(policy.memory_bytes(host.profile)) >= 0, "memory_bytes returned a negative number"
    assert all(0 <= p <= 1 for p in policy.acceptance()), "acceptance: a probability is outside [0, 1]"


def _drafts(
    policy: Drafter[Any], host: HostInfo, seed: int, base: int, stride: int, *, batch: bool = False
) -> list[tuple[int, ...]]:
    """Return what is drafted for six requests, two at a time; request i has the number base + stride * i."""
    state = policy.new_state(host)
    out: list[tuple[int, ...]] = []
    for pair in range(3):
        alive = [(i, base + stride * i) for i in (2 * pair, 2 * pair + 1)]
        ids = draws.bits_array(seed, "toy prompt", pair % 2, np.arange(40) % 9).astype(np.uint32)
        for i, request in alive:
            policy.begin(state, RequestView(request, pair - 1, i // 4, 0, i * 1000, len(ids)), ids)
        for step in range(8):
            numbers = [request for _, request in alive]
            limit = draws.bits(seed, "toy limit", pair, step) % 6
            if batch:
                drafts = policy.propose_batch(state, numbers, limit)
            else:
                drafts = [policy.propose(state, request, limit) for request in numbers]
            tokens, blocks = [], []
            for (i, _), draft in zip(alive, drafts, strict=True):
                _check_draft(draft, limit, f"seed {seed}, request {i}, step {step}")
                assert policy.active() or not len(draft.tokens), "active() is False, yet a draft was made"
                out.append(tuple(draft.tokens.tolist()))
                tokens.append(ids[i + step : i + step + 1 + len(draft.tokens) // 2])
                told = draws.bits_array(seed, "toy block", i // 2, step, np.arange(len(tokens[-1])))
                blocks.append((told % np.uint64(2)).astype(np.int8) if pair else None)
            if batch:
                policy.commit_batch(state, numbers, tokens, blocks)
            else:
                for request, new, told_ in zip(numbers, tokens, blocks, strict=True):
                    policy.commit(state, request, new, told_)
        for _, request in alive:
            policy.finish(state, request)
    return out


def _check_draft(draft: Draft, limit: int, where: str) -> None:
    n = len(draft.tokens)
    assert n <= limit, f"{where}: {n} tokens proposed, the limit is {limit}"
    assert draft.tokens.dtype == np.uint32, f"{where}: tokens are {draft.tokens.dtype}, expected uint32"
    assert draft.confidence.dtype == np.float32, (
        f"{where}: confidence is {draft.confidence.dtype}, expected float32"
    )
    assert len(draft.confidence) == n, f"{where}: {n} tokens with {len(draft.confidence)} confidences"
    assert np.all((draft.confidence >= 0) & (draft.confidence <= 1)), (
        f"{where}: a confidence is outside [0, 1]"
    )
    assert np.all(np.diff(draft.confidence) <= 0), (
        f"{where}: a token is likelier than the one before it, without which it cannot be accepted"
    )
    assert 0 <= draft.consensus_tokens <= n, f"{where}: {draft.consensus_tokens} consensus tokens of {n}"
    assert 0 <= draft.agreeing <= draft.matches, f"{where}: {draft.agreeing} of {draft.matches} matches agree"


def check_budget(policy: Budget[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """int32[B] between 0 and what was proposed, nothing else changed, equal reruns."""
    for seed in seeds:
        runs = []
        for _ in range(2):
            state = policy.new_state(host)
            out: list[tuple[int, ...]] = []
            for step, seqs in enumerate((0, 1, 5, 32, 5)):
                where = f"seed {seed}, batch of {seqs}"
                batch = BatchView(step * 1000, seqs, seqs * 500, 0)
                limit = policy.limit(state, batch)
                assert isinstance(limit, int), f"{where}: limit returned {limit!r}"
                assert limit >= 0, f"{where}: limit returned {limit}"
                given = _proposals(seed, step, seqs)
                length = given.length.copy()
                got = policy.allocate(state, given, batch)
                assert np.array_equal(given.length, length), f"{where}: allocate changed the proposals"
                assert got.dtype == np.int32, f"{where}: allocate returned {got.dtype}, expected int32"
                assert got.shape == (seqs,), f"{where}: allocate returned the shape {got.shape}"
                assert np.all(got >= 0), f"{where}: allocate gave a negative number of tokens"
                assert np.all(got <= length), f"{where}: allocate gave more tokens than were proposed"
                policy.observe(state, given.request, got, got // 2)
                out.append(tuple(got.tolist()))
            runs.append(out)
        assert runs[0] == runs[1], f"seed {seed}: equal histories, other budgets"


def _proposals(seed: int, step: int, seqs: int) -> Proposals:
    rows = np.arange(seqs)
    length = (draws.bits_array(seed, "toy length", step, rows) % np.uint64(9)).astype(np.int32)
    matches = (draws.bits_array(seed, "toy matches", step, rows) % np.uint64(6)).astype(np.int64)
    drafts = [
        Draft(
            np.arange(n, dtype=np.uint32),
            np.full(n, 0.7, dtype=np.float32).cumprod(dtype=np.float32),
            int(n) // 2,
            int(m),
            int(m) // 2,
        )
        for n, m in zip(length, matches, strict=True)
    ]
    acceptance = draws.uniform_array(seed, "toy acceptance", step, rows).astype(np.float32)
    return Proposals((100 + 3 * rows).astype(np.int32), length, drafts, acceptance)


def check_bucketer(policy: Bucketer[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """The plan ascends; executed >= active >= the step's tokens; an eager step pads nothing; equal reruns."""
    plan = policy.plan(host)
    assert all(isinstance(n, int) and n > 0 for n in plan), f"plan returned {plan}, expected positive widths"
    assert list(plan) == sorted(set(plan)), "plan must ascend"
    for seed in seeds:
        runs = []
        for _ in range(2):
            state = policy.new_state(host)
            out = []
            for i in range(60):
                shape = _shape(seed, i, host)
                got = policy.pick(state, plan, shape)
                where = f"seed {seed}, {shape}: {got}"
                assert got.executed >= got.active >= shape.tokens, f"{where}: executed >= active >= tokens"
                assert got.key is not None or not (got.build or got.plan_update), f"{where}: no key, no graph"
                assert got.key is not None or got.executed == shape.tokens, (
                    f"{where}: eager steps pad nothing"
                )
                assert got.holds_until_tokens >= 0, where
                out.append(got)
            runs.append(out)
        assert runs[0] == runs[1], f"seed {seed}: equal histories, other graphs"


def _shape(seed: int, i: int, host: HostInfo) -> BatchShape:
    bits = draws.bits(seed, "toy shape", i)
    seqs = 1 + bits % min(host.max_num_seqs, 64)
    query = (0, 1, 1, 4)[bits >> 8 & 3]
    prefill = bits >> 16 & 511 if bits >> 12 & 1 else 0
    tokens = seqs * max(query, 2 if query == 0 else 1) + prefill
    # A ragged batch: some sequence has more than the others.
    widest = query or min(seqs + 1, 3)
    return BatchShape(seqs, query, tokens, 1 if prefill else 0, seqs * 300, widest, 300 + i)


class ToyHostNode(ToyNode):
    """A toy node with readers."""

    __slots__ = ("readers",)
    readers: tuple[tuple[int, int], ...]


def check_prefetcher(policy: Prefetcher[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """Distinct rows of the list, within the budget, no node before its host-resident parent; equal reruns.

    The same answer when asked again, and nothing at a smaller budget where there was nothing at a larger one: hosts
    rely on both to pass over steps. From nodes offered one by one the same choice as from a list of them.
    """
    for seed in seeds:
        runs = []
        for _ in range(2):
            state = policy.new_state(host)
            out = []
            for i in range(20):
                policy.forecast(state, Forecast(i % 3, i, _rows(seed, i, len(host.agents))))
                if i % 7 == 6:
                    policy.workflow_finished(state, i % 3, i)
                nodes = _host_nodes(seed, i)
                budget_tokens = draws.bits(seed, "toy budget", i) % 200
                shape = _shape(seed, i, host)
                rows = policy.choose(state, nodes, budget_tokens, shape)
                where = f"seed {seed}, call {i}: chose {rows} of {len(nodes)} nodes"
                assert policy.active() or not rows, f"{where}, though active() is False"
                assert len(set(rows)) == len(rows), f"{where}: twice the same"
                assert all(0 <= r < len(nodes) for r in rows), f"{where}: no such row"
                spent = sum(nodes[r].tokens for r in rows)
                assert spent <= budget_tokens, f"{where}: {spent} tokens, the budget is {budget_tokens}"
                index = {n.id: r for r, n in enumerate(nodes)}
                for at, r in enumerate(rows):
                    parent = nodes[r].parent
                    ready = parent is None or parent.id not in index or index[parent.id] in rows[:at]
                    assert ready, f"{where}: row {r} before its parent"
                again = policy.choose(state, nodes, budget_tokens, shape)
                assert again == rows, f"{where}; asked again {again}"
                less = policy.choose(state, nodes, budget_tokens // 2, shape)
                assert rows or not less, f"{where} at {budget_tokens} tokens, but {less} at half of it"
                # At this budget no node stands for its leading part, which would be another question.
                ample = max(budget_tokens, *(n.tokens for n in nodes))
                for node in nodes:
                    policy.offer(state, node, nodes.index(node))
                kept = policy.choose_offered(state, ample, shape)
                assert (kept is None) == (type(policy).choose_offered is Prefetcher.choose_offered)
                if kept is not None:
                    listed = [nodes[r] for r in policy.choose(state, nodes, ample, shape)]
                    assert kept == listed, f"{where}; of the same nodes offered {kept}, listed {listed}"
                for node in nodes:
                    policy.withdraw(state, node.id)
                assert not policy.choose_offered(state, ample, shape), f"{where}; chosen, though withdrawn"
                displaceable = policy.displaceable_tokens(state, i * 64)
                assert isinstance(displaceable, int), f"displaceable_tokens returned {displaceable!r}"
                assert 0 <= displaceable <= host.capacity_tokens, (
                    f"displaceable_tokens returned {displaceable}"
                )
                out.append(rows)
            runs.append(out)
        assert runs[0] == runs[1], f"seed {seed}: equal histories, other rows"


def _host_nodes(seed: int, i: int) -> list[ToyHostNode]:
    nodes: list[ToyHostNode] = []
    for k in range(12):
        bits = draws.bits(seed, "toy host node", i, k)
        parent = nodes[bits % k] if k and bits >> 8 & 1 else None
        node = ToyHostNode(k + 1, parent, tuple(range(k, k + 1 + (bits >> 16) % 4)), i, Meter())
        node.readers = tuple((r % 3, r // 3 % 3) for r in range(bits >> 24 & 1, 9, 1 + (bits >> 28) % 4))
        nodes.append(node)
    return nodes


def _rows(seed: int, i: int, agents: int) -> NDArray[np.float32]:
    raw = draws.uniform_array(seed, "toy rows", i, np.arange(2 * (agents + 1))).reshape(2, agents + 1)
    rows: NDArray[np.float32] = (raw / raw.sum(axis=1, keepdims=True)).astype(np.float32)
    return rows
