"""The books of a replica: what must hold between any two steps. Used by tests and by the fuzzer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.engine import Engine


def check_engine(engine: Engine) -> None:
    """Raise AssertionError when a replica's accounts contradict each other. Does not mutate."""
    tree, batch, size = engine.tree, engine.batch, engine.config.block_tokens
    tree.check_integrity()
    if engine.host_tier is not None:
        engine.host_tier.tree.check_integrity()
        assert engine.host_tier.tree.resident_blocks <= engine.host_tier.capacity_blocks
        assert engine.host_tier.tree.protected_blocks == 0
    if engine.prefetch is not None:
        engine.prefetch.check()
    assert engine.free_blocks >= 0, f"replica {engine.index}: {engine.free_blocks} free blocks"
    held = context = decoding = 0
    phases = [0] * size
    pins: dict[int, int] = {}
    for request in engine.running_requests.values():
        computed = request.computed_tokens
        if request.join_step >= 0:
            computed += batch.step - request.join_step
            decoding += 1
            context += computed + 1
            phases[(batch.step - computed) % size] += 1
            assert request not in engine.prefilling
        held += -(-max(computed, request.target_tokens) // size) - request.node_blocks
        if request.node is not None:
            assert request.node.end >= request.node_blocks > request.node.start, request.node
            pins[request.node.id] = pins.get(request.node.id, 0) + 1
        else:
            assert request.node_blocks == 0
    assert held == engine.memory.private_blocks, (
        f"requests hold {held} blocks, the books say {engine.memory.private_blocks}"
    )
    assert (decoding, context, phases) == (batch.seqs, batch.context_tokens, batch.phases)
    children: dict[int, int] = {}
    for node in tree.nodes():
        if node.refs and node.parent is not None:
            children[node.parent.id] = children.get(node.parent.id, 0) + 1
    for node in tree.nodes():
        assert node.refs == pins.get(node.id, 0) + children.get(node.id, 0), node
    assert len(engine.running_requests) <= engine.config.max_num_seqs
