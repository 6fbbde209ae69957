"""Generated workloads: independent requests, and multi-turn sessions whose prompts share prefixes. Seeded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces import draws
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.flat import flat_workload
from traces.lengths import Lengths
from traces.schema import StageKind, Workload

Int64 = NDArray[np.int64]
_MS = 1_000_000
_MAX_CELLS = 20_000_000
_VOCABULARY = 50_000


def requests(
    name: str,
    arrival_ns: Int64,
    prompt: Lengths,
    output: Lengths,
    seed: int,
    options: dict[str, Any] | None = None,
) -> Workload:
    """Return one workflow of one request for each of `arrival_ns`[n]; prompts share nothing."""
    ids = np.arange(len(arrival_ns))
    prompt_tokens = prompt.draw(seed, "prompt tokens", ids)
    output_tokens = output.draw(seed, "output tokens", ids)
    return flat_workload(
        name,
        arrival_ns,
        prompt_tokens.astype(np.int32),
        output_tokens.astype(np.int32),
        _provenance("requests", seed, options),
    )


def sessions(
    name: str,
    arrival_ns: Int64,
    *,
    turns: Lengths,
    user: Lengths,
    output: Lengths,
    think_ms: Lengths,
    system_tokens: int,
    system_prompts: int = 1,
    block_tokens: int = 16,
    repeats: float | None = None,
    seed: int = 0,
    options: dict[str, Any] | None = None,
) -> Workload:
    """Return one session for each of `arrival_ns`[n]: turns one after the other, think time between them.

    The prompt of a turn is the system prompt, all earlier user messages and outputs, and the new message.
    One of `system_prompts` system prompts is drawn for each session and names its agent. Identity is known in
    full blocks of `block_tokens`: blocks inside a system prompt are shared by all sessions that use it, every
    other block belongs to its session. repeats: give outputs token ids, this share of their runs of 8 to 40 tokens
    copied from what the session wrote before; None: no ids.
    """
    if system_tokens < 0 or system_prompts < 1 or block_tokens < 1:
        raise InputError("sessions: expected system_tokens >= 0, system_prompts >= 1 and block_tokens >= 1")
    n = len(arrival_ns)
    count = turns.draw(seed, "turns", np.arange(n))
    if count.min() < 1:
        raise InputError("sessions: field 'turns': a session has at least 1 turn")
    if repeats is not None and not 0 <= repeats <= 1:
        raise InputError(f"sessions: repeats={repeats}: expected a share from 0 to 1")
    if n * int(count.max()) > _MAX_CELLS:
        raise InputError(f"sessions: {n} sessions of up to {count.max()} turns are too many to make at once")
    grid = np.arange(n)[:, None], np.arange(int(count.max()))[None, :]
    new_tokens = user.draw(seed, "prompt tokens", *grid)
    out_tokens = output.draw(seed, "output tokens", *grid)
    wait_ms = think_ms.draw(seed, "think", *grid)
    agent = (draws.bits_array(seed, "system prompt", np.arange(n)) % np.uint64(system_prompts)).astype(
        np.int64
    )
    builder = WorkloadBuilder(name, block_tokens)
    for s in range(n):
        builder.workflow(f"session-{s}", int(arrival_ns[s]))
        t = int(count[s])
        grown = np.cumsum(new_tokens[s, :t] + out_tokens[s, :t]) + system_tokens
        units = _units(seed, int(agent[s]), s, system_tokens // block_tokens, int(grown[-1]) // block_tokens)
        parents: list[int] = []
        text = None if repeats is None else _text(seed, s, int(out_tokens[s, :t].sum()), repeats)
        said = 0
        for turn in range(t):
            end = int(grown[turn])
            prompt_tokens = end - int(out_tokens[s, turn])
            if turn and wait_ms[s, turn]:
                parents = [builder.delay(StageKind.WAIT, int(wait_ms[s, turn]) * _MS, parents=parents)]
            stage = builder.llm(
                prompt_tokens,
                int(out_tokens[s, turn]),
                parents=parents,
                agent=f"agent-{agent[s]}",
                prompt_units=units[: prompt_tokens // block_tokens],
                sequence_units=units[: end // block_tokens],
                output_ids=None if text is None else text[said : said + int(out_tokens[s, turn])],
            )
            said += int(out_tokens[s, turn])
            parents = [stage]
    return builder.build(_provenance("sessions", seed, options))


def _text(seed: int, session: int, tokens: int, repeats: float) -> NDArray[np.uint32]:
    """Return uint32[tokens]: runs of 8 to 40 tokens, each new or copied from a place before it."""
    out = np.zeros(tokens, dtype=np.uint32)
    at = run = 0
    while at < tokens:
        n = min(8 + draws.bits(seed, "run length", session, run) % 33, tokens - at)
        if at and draws.uniform(seed, "run copied", session, run) < repeats:
            start = draws.bits(seed, "run place", session, run) % max(at - n, 1)
            n = min(n, at - start)
            out[at : at + n] = out[start : start + n]
        else:
            fresh = draws.bits_array(seed, "token", np.int64(session), np.int64(run), np.arange(n))
            out[at : at + n] = fresh % np.uint64(_VOCABULARY) + np.uint64(1)
        at, run = at + n, run + 1
    return out


def _units(seed: int, agent: int, session: int, shared_blocks: int, blocks: int) -> NDArray[np.uint64]:
    """Return the block ids of a session's whole text: those of its system prompt, then its own."""
    at = np.arange(blocks)
    common = draws.bits_array(seed, "system block", np.int64(agent), at[:shared_blocks])
    own = draws.bits_array(seed, "session block", np.int64(session), at[shared_blocks:])
    return np.concatenate([common, own])


def _provenance(kind: str, seed: int, options: dict[str, Any] | None) -> dict[str, Any]:
    return {"source": f"generated ({kind})", "seed": seed, "options": options or {}, "not_imported": {}}
