"""What a state holds, as a value that can be compared: the laws look whether a method changed it.

Not by pickling: classes of a user's folder live in modules that cannot be imported by name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np


def content(x: Any) -> Any:
    """Return nested tuples of everything reachable from `x`: attributes, slots, items, arrays. Does not mutate."""
    return _content(x, {})


def _content(x: Any, seen: dict[int, int]) -> Any:
    if x is None or isinstance(x, bool | int | float | str | bytes):
        return type(x).__name__, repr(x)
    if id(x) in seen:
        return "seen", seen[id(x)]  # cycles, and one object held twice
    seen[id(x)] = len(seen)
    kind = type(x).__qualname__
    if isinstance(x, np.ndarray):
        return kind, str(x.dtype), x.shape, x.tobytes()
    if isinstance(x, Mapping):
        return kind, tuple((_content(k, seen), _content(v, seen)) for k, v in x.items())
    if isinstance(x, list | tuple | deque):
        return kind, tuple(_content(v, seen) for v in x)
    if isinstance(x, set | frozenset):
        return kind, tuple(sorted(repr(_content(v, seen)) for v in x))
    if callable(x) and not hasattr(x, "__dict__"):
        return kind, repr(x)
    slots = [s for cls in type(x).__mro__ for s in getattr(cls, "__slots__", ()) if hasattr(x, s)]
    held = {**{s: getattr(x, s) for s in slots}, **getattr(x, "__dict__", {})}
    return kind, tuple((name, _content(v, seen)) for name, v in sorted(held.items()))
