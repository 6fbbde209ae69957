"""numba where it is installed: the same functions, compiled. Without it, and with it, the results are equal.

It is loaded when the first function is called: whoever lists policies, or runs none that draft, does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

FAST = find_spec("numba") is not None  # the base install has no compiler
_inlined: list[Callable[..., Any]] = []


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that compiled ones call; it stays callable from Python."""
    _inlined.append(function)
    return function


class Compiled:
    """A function that is compiled at its first call, and kept on disk where there is a writable place."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function
        self._made: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call it. Compiles once."""
        made = self._made
        if made is None:
            made = self._made = _compile(self.py_func)
        return made(*arguments)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as it is to be called: compiled where there is a compiler, or itself."""
    return Compiled(function) if FAST else function


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    import numba
    from numba.extending import register_jitable

    while _inlined:
        register_jitable(_inlined.pop())
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
