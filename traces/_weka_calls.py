"""Weka coding-agent traces, first half: from the file to calls with a start, an end, a role and a chain.

The format is one JSON object a trace (kv-cache-tester, `traces/`): `requests` in time order, each with `t`
and `api_time` in seconds, token counts `in` and `out`, and `hash_ids`, one id for each full block of
`block_size` prompt tokens, meaningful within the trace only. An entry of type "subagent" nests the calls of
one sub-agent; its `t` is the time it ended, it began `duration_ms` before, and its calls count from there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces import draws
from traces._records import get, get_at_least, get_ns
from traces.errors import InputError, at

GRAIN_NS = 1_000_000_000  # `t` of a call is floored to seconds
MAIN, AUX = "main", "aux"


@dataclass
class Call:
    """One LLM call.

    end_ns    -1 where the trace has no api_time
    units     uint64 ids of the full blocks of the prompt, made distinct per trace
    subagent  index of the sub-agent the call belongs to, -1 in the main conversation
    """

    start_ns: int
    end_ns: int
    model: str
    prompt_tokens: int
    output_tokens: int
    units: NDArray[np.uint64]
    human: bool
    agent: str
    subagent: int


@dataclass
class Trace:
    """One trace: its calls in time order, and when each sub-agent began."""

    name: str
    calls: list[Call]
    subagent_start_ns: list[int]


def parse(raw: Any, path: Path, block_tokens: int, skipped: Counter[str]) -> Trace:
    """Return the trace held by the JSON value of `path`. Mutates `skipped` (reason -> count)."""
    name = get(raw, "id", str, path)
    given = get_at_least(raw, "block_size", 1, path)
    if given != block_tokens:
        raise InputError(f"{at(path, None, 'block_size')}: {given}, but the first trace has {block_tokens}")
    calls: list[Call] = []
    starts: list[int] = []
    for i, entry in enumerate(get(raw, "requests", list, path)):
        inside = f"requests[{i}]."
        kind = get(entry, "type", str, path, inside)
        if kind == "subagent":
            end_ns = get_ns(entry, "t", path, inside)
            start_ns = max(0, end_ns - get_at_least(entry, "duration_ms", 0, path, inside) * 1_000_000)
            role = get(entry, "subagent_type", str, path, inside).lower()
            for j, nested in enumerate(get(entry, "requests", list, path, inside)):
                place = f"{inside}requests[{j}]."
                calls += _call(nested, path, place, name, block_tokens, role, len(starts), start_ns, skipped)
            starts.append(start_ns)
        elif kind in ("n", "s"):
            calls += _call(entry, path, inside, name, block_tokens, MAIN, -1, 0, skipped)
        else:
            skipped[f"entry of unknown type {kind!r}"] += 1
    conversation = [c for c in calls if c.subagent < 0]
    if any("haiku" not in c.model for c in conversation):
        for c in conversation:
            if "haiku" in c.model:
                c.agent = AUX
    calls.sort(key=lambda c: c.start_ns)  # stable: the file's order within a second
    return Trace(name, calls, starts)


def _call(
    r: Any, path: Path, inside: str, trace: str, block_tokens: int, agent: str, sub: int, origin_ns: int,
    skipped: Counter[str],
) -> list[Call]:  # fmt: skip
    start_ns = origin_ns + get_ns(r, "t", path, inside)
    prompt_tokens = get_at_least(r, "in", 0, path, inside)
    output_tokens = get_at_least(r, "out", 0, path, inside)
    ids = get(r, "hash_ids", list, path, inside)
    if prompt_tokens == 0:
        skipped["call without prompt tokens"] += 1
        return []
    if not all(type(h) is int and 0 <= h < 2**63 for h in ids):
        raise InputError(f"{at(path, None, inside + 'hash_ids')}: expected whole numbers from 0 to 2^63-1")
    if len(ids) > -(-prompt_tokens // block_tokens):
        raise InputError(
            f"{at(path, None, inside + 'hash_ids')}: {len(ids)} blocks of {block_tokens} tokens exceed"
            f" the prompt's {prompt_tokens} tokens"
        )
    end_ns = start_ns + get_ns(r, "api_time", path, inside) if "api_time" in r else -1
    units = draws.bits_array(0, f"weka/{trace}", np.array(ids, dtype=np.int64))
    human = get(r, "input_types", list, path, inside) == ["text"]
    model = get(r, "model", str, path, inside)
    return [Call(start_ns, end_ns, model, prompt_tokens, output_tokens, units, human, agent, sub)]


def estimate_ends(traces: list[Trace]) -> tuple[int, int]:
    """Fill the missing `end_ns`; return (calls filled, ns per output token over all traces).

    A call without api_time lasts its output tokens times the median ns per output token of the calls that
    have one (of its trace where that has at least 8, else of all), but ends no later than the next call of
    the conversation. Mutates the calls.
    """
    overall = _ns_per_token([c for t in traces for c in t.calls])
    filled = 0
    for trace in traces:
        own = [c for c in trace.calls if c.end_ns >= 0 and c.output_tokens > 0]
        rate = _ns_per_token(own) if len(own) >= 8 else overall
        for i, call in enumerate(trace.calls):
            if call.end_ns >= 0:
                continue
            later = [c.start_ns for c in trace.calls[i + 1 :] if c.subagent == call.subagent]
            end_ns = call.start_ns + rate * call.output_tokens
            call.end_ns = min(end_ns, later[0]) if later else end_ns
            filled += 1
    return filled, overall


def _ns_per_token(calls: list[Call]) -> int:
    rates = sorted(
        (c.end_ns - c.start_ns) // c.output_tokens for c in calls if c.end_ns >= 0 and c.output_tokens > 0
    )
    return rates[len(rates) // 2] if rates else 0


def predecessors(trace: Trace) -> list[int]:
    """Return, for each call, the call it continues or was started by; -1 for the first.

    A sub-agent's calls follow each other. A call of the conversation continues the chain of its role that
    had ended (within the 1 s grain of `t`) and shares the longest prefix with it. A main call that shares
    nothing with any (the context was cleared or compacted) continues the main chain that ended last; an aux
    call that shares nothing begins its own chain, beside the main one. What begins a chain was started by
    the call that had ended last by then.
    """
    out: list[int] = []
    last: list[int] = []  # the last call of each chain
    for i, call in enumerate(trace.calls):
        mine = [c for c in last if _may_continue(trace.calls[c], call)]
        shared = {c: _common(trace.calls[c].units, call.units) for c in mine}
        best = max(mine, key=lambda c: (shared[c], trace.calls[c].end_ns, c), default=-1)
        if best >= 0 and (shared[best] > 0 or call.agent != AUX):
            last.remove(best)
        else:
            best = _started_by(trace, i)
        out.append(best)
        last.append(i)
    return out


def joins(trace: Trace, predecessor: list[int]) -> list[list[int]]:
    """Return, for each call, the last calls of the sub-agents it had to wait for.

    The first main call that starts after a sub-agent's last call has ended takes its result.
    """
    out: list[list[int]] = [[] for _ in trace.calls]
    for sub in range(len(trace.subagent_start_ns)):
        members = [i for i, c in enumerate(trace.calls) if c.subagent == sub]
        if not members:
            continue
        end = members[-1]
        for i in range(end + 1, len(trace.calls)):
            call = trace.calls[i]
            if call.subagent < 0 and call.agent == MAIN and _ended_by(trace.calls[end], call):
                if predecessor[i] != end:
                    out[i].append(end)
                break
    return out


def _ended_by(before: Call, call: Call) -> bool:
    return before.end_ns <= call.start_ns + GRAIN_NS


def _may_continue(before: Call, call: Call) -> bool:
    if before.subagent != call.subagent:
        return False
    return call.subagent >= 0 or (before.agent == call.agent and _ended_by(before, call))


def _started_by(trace: Trace, i: int) -> int:
    call = trace.calls[i]
    done = [
        k
        for k, before in enumerate(trace.calls[:i])
        if _ended_by(before, call) and (before.subagent < 0 or call.subagent < 0)
    ]
    return max(done, key=lambda k: (trace.calls[k].end_ns, k), default=0 if i else -1)


def _common(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> int:
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n
