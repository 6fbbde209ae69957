"""What a host decided while it played a script, in a form that two hosts can be compared in."""

from __future__ import annotations

from dataclasses import dataclass

from live.script import Content

# What the scheduler made of a step. KV in use is not among them: the simulator reserves a prompt's blocks at admission.
STEP_COLUMNS = (
    "decode_seqs", "prefill_seqs", "prefill_tokens", "context_tokens", "waiting", "drafted_tokens", "accepted_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class Decisions:
    """What a host did with a script.

    victims           blocks that left, in order
    hit_tokens        prompt tokens found cached, by request
    host_hit_tokens   prompt tokens loaded back from the host tier, by request
    prefetched        blocks that came back before they were asked for, in order
    steps             every step's STEP_COLUMNS, in order
    """

    victims: tuple[Content, ...]
    hit_tokens: tuple[int, ...]
    host_hit_tokens: tuple[int, ...] = ()
    prefetched: tuple[Content, ...] = ()
    steps: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Load:
    """How a script's requests were sent. `sent`: the tick of each; empty: one after the other."""

    sent: tuple[int, ...] = ()
    max_num_seqs: int = 1
    max_num_batched_tokens: int = 2048
