"""Who takes the launches: the current stream, or a recorder that captures them in its place.

On a GPU CUDA itself captures what is launched on a capturing stream. On a CPU the recorder of `kernels.graphs.fake`
takes the launches here, so that the same code is captured by either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kernels.op import Launch, Tensors


class Taker(Protocol):
    """Takes launches instead of the stream."""

    def take(self, launch: Launch, tensors: Tensors) -> None:
        """Record a launch; nothing runs. Mutates the recorder."""
        ...


_taker: ContextVar[Taker | None] = ContextVar("taker", default=None)


def taker() -> Taker | None:
    """Return who takes launches now; None: they run."""
    return _taker.get()


@contextmanager
def taken_by(recorder: Taker) -> Iterator[None]:
    """Let `recorder` take every launch of the block."""
    token = _taker.set(recorder)
    try:
        yield
    finally:
        _taker.reset(token)
