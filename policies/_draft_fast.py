"""numba where it is installed: the same functions, compiled. Without it, and with it, the results are equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import numba

    FAST = True
except ImportError:  # the base install has no compiler
    FAST = False


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that compiled ones call; it stays callable from Python."""
    if not FAST:
        return function
    from numba.extending import register_jitable

    marked: Callable[..., Any] = register_jitable(function)
    return marked


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the compiled function (at its first call; kept on disk where there is a writable place), or itself."""
    if not FAST:
        return function
    try:
        made: Callable[..., Any] = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no place to keep what was compiled
        made = numba.njit(nogil=True)(function)
    return made


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python function behind a compiled one."""
    behind: Callable[..., Any] = getattr(function, "py_func", function)
    return behind


def views(fast: bool, *arrays: Any) -> tuple[Any, ...]:
    """Return arrays as the functions want them: Python reads and writes memory views faster than arrays."""
    return arrays if fast else tuple(memoryview(a) for a in arrays)
