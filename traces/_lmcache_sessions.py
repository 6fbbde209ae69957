"""LMCache agent traces, first half: from JSON lines to tokenised sessions with roles.

One line a call: {timestamp (microseconds, start of the call), input (the whole prompt), output, session_id},
in no order of time. Folders are sets ("miniswe", "magagent", "taubench"); a session is a session_id of a set.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traces._dialogue import Outlines
from traces._records import get, get_at_least
from traces._tokenizer import Tokenize
from traces.errors import InputError, at
from traces.reading import records

HEAD_TOKENS = 8  # long enough to tell the system prompts of Magentic-style agents apart
OTHER = "other"


@dataclass
class Call:
    """One call; `gap_us` is the time from the start of the call imported before it, 0 for the first.

    blocks: name of the semantic block open after each output token.
    """

    start_us: int
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    gap_us: int = 0
    blocks: list[str] = field(default_factory=list)
    role: str = OTHER


@dataclass
class Session:
    """One session of a set, calls in time order; `content` is what the token key is made from."""

    group: str
    name: str
    calls: list[Call]
    content: bytes = field(repr=False, default=b"")


def read_file(path: Path) -> dict[str, list[tuple[int, str, str]]]:
    """Return session_id -> [(timestamp in us, input, output)] in the order of the file."""
    out: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for line, record in records(path):
        try:
            time_us = _whole(record, "timestamp", path)
            session = get(record, "session_id", str, path)
            out[session].append((time_us, get(record, "input", str, path), get(record, "output", str, path)))
        except InputError as e:
            raise InputError(str(e).replace(f"{path}: ", f"{at(path, line)}: ", 1)) from None
    return out


def _whole(record: dict[str, Any], name: str, path: Path) -> int:
    value = get(record, name, int, path)
    if not 0 <= value < 2**62:
        get_at_least(record, name, 0, path)
    return value


def tokenised(
    group: str,
    name: str,
    rows: list[tuple[int, str, str]],
    tokenize: Tokenize,
    outlines: Outlines,
    skipped: Counter[str],
) -> Session:
    """Return the session of these rows. Mutates `skipped` (reason -> count).

    A call with an empty input is not imported (its prompt was not recorded); its time stays in the gap.
    """
    rows = sorted(rows, key=lambda r: r[0])
    content = "\0".join(f"{t}\0{prompt}\0{output}" for t, prompt, output in rows).encode()
    calls: list[Call] = []
    for time_us, prompt, output in rows:
        ids = tuple(tokenize(prompt))
        if not ids:
            skipped[f"{group}: call with an empty input"] += 1
            continue
        gap_us = time_us - calls[-1].start_us if calls else 0
        output_ids, blocks = outlines.of(output)
        calls.append(Call(time_us, ids, tuple(output_ids), gap_us, blocks))
    return Session(group, name, calls, content)


def name_roles(sessions: list[Session]) -> None:
    """Set each call's role: "role-N" for prompt heads (first 8 tokens) that two sessions of a set share.

    N counts a set's heads from the most frequent down; calls with a head of their own are "other". Mutates.
    """
    for group in {s.group for s in sessions}:
        calls: Counter[tuple[int, ...]] = Counter()
        seen_in: dict[tuple[int, ...], set[str]] = defaultdict(set)
        mine = [s for s in sessions if s.group == group]
        for s in mine:
            for c in s.calls:
                head = c.prompt[:HEAD_TOKENS]
                calls[head] += 1
                seen_in[head].add(s.name)
        shared = [h for h in calls if len(seen_in[h]) > 1 or len(mine) == 1]
        rank = {h: k for k, h in enumerate(sorted(shared, key=lambda h: (-calls[h], h)))}
        for s in mine:
            for c in s.calls:
                k = rank.get(c.prompt[:HEAD_TOKENS])
                c.role = OTHER if k is None else f"role-{k}"


def decode_us_per_token(sessions: list[Session]) -> dict[str, int]:
    """Return set -> us per output token: the 10th percentile of (gap to the next start) / output tokens.

    The sources hold no LLM time. The fastest tenth of the gaps hold hardly any tool time, so their pace is an
    estimate, on the low side, of how long a token takes to generate.
    """
    pace: dict[str, list[int]] = defaultdict(list)
    for s in sessions:
        pace[s.group] += [
            b.gap_us // len(a.output) for a, b in zip(s.calls, s.calls[1:], strict=False) if a.output
        ]
    return {group: sorted(p)[len(p) // 10] if p else 0 for group, p in sorted(pace.items())}
