"""The time-stamped log of one AutoCodeRover task as calls: who called, tokens in and out, tool time after it."""

from __future__ import annotations

import calendar
import re
import time
from dataclasses import dataclass
from pathlib import Path

from traces.errors import InputError, at
from traces.reading import lines

_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ?(.*)")
_COST = re.compile(r"Model API request cost info: input_tokens=(\d+), output_tokens=(\d+)")
_PROXY, _PATCH, _DISPATCH = (
    "Trying to select search APIs in json",
    "Trying to write a patch",
    "Result of dispatch_",
)


@dataclass
class Call:
    """One API call. agent: searcher, proxy, patcher; tool_s: from its answer to the last tool result after it."""

    agent: str
    input_tokens: int
    output_tokens: int
    tool_s: int = 0


def read_calls(path: Path) -> list[Call]:
    """Return the calls of an `info.timestamps.txt` or `info.log`, in order. Raises InputError with file and line.

    The log names no agent: a call after "Trying to select search APIs" is the proxy's (it turns prose into JSON), one
    after "Trying to write a patch" the patcher's, all others are the searcher's. Times have 1 s grain.
    """
    calls: list[Call] = []
    agent = "searcher"
    answered_s = 0
    for number, raw in lines(path):
        match = _LINE.match(raw.decode(errors="replace"))
        if match is None:
            continue  # the log's messages go over several lines; only their first has a stamp
        try:
            now_s = calendar.timegm(time.strptime(match[1], "%Y-%m-%d %H:%M:%S"))
        except ValueError:
            raise InputError(f"{at(path, number)}: {match[1]!r} is no date and time") from None
        text = match[2]
        if text.startswith(_PROXY):
            agent = "proxy"
        elif text.startswith(_PATCH):
            agent = "patcher"
        elif text.startswith(_DISPATCH) and calls:
            calls[-1].tool_s = max(now_s - answered_s, 0)
        elif (cost := _COST.match(text)) is not None:
            sizes = int(cost[1]), int(cost[2])
            if not (1 <= sizes[0] < 2**31 and sizes[1] < 2**31):
                raise InputError(f"{at(path, number, 'input_tokens')}: got {sizes[0]}, allowed: 1 to 2^31-1")
            calls.append(Call(agent, *sizes))
            answered_s = now_s
            agent = "searcher"
    return calls
