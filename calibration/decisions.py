"""What a host decided while it played a script, in a form that two hosts can be compared in."""

from __future__ import annotations

from dataclasses import dataclass

from live.script import Content


@dataclass(frozen=True)
class Decisions:
    """What a host did with a script.

    victims           blocks that left, in order
    hit_tokens        prompt tokens found cached, by request
    host_hit_tokens   prompt tokens loaded back from the host tier, by request
    prefetched        blocks that came back before they were asked for, in order
    """

    victims: tuple[Content, ...]
    hit_tokens: tuple[int, ...]
    host_hit_tokens: tuple[int, ...] = ()
    prefetched: tuple[Content, ...] = ()
