"""The measurement plan as data: which points, in which order, with an anchor every so many.

Pieces: A plain steps, B mixed and skewed steps, C verification, D engine and HTTP overhead, E the host link,
F CUDA graphs, G runs kept out of the fit. Steps are named as in `calibration.rows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from traces import draws
from traces.errors import InputError, nearest

PIECES = "ABCDEFG"
PLANS = ("quick", "full")
ANCHOR_EVERY = 10
_K = 1024


@dataclass(frozen=True)
class Point:
    """One thing to measure.

    piece            A to F, or "anchor"
    kind             decode, prefill, mixed, verify, idle (see `calibration.rows`); copy, graph
    batch, new_tokens, context_tokens, prefix_tokens   the step, as a row states it
    long_seqs, long_context_tokens   skewed batch: so many of its sequences hold this much context instead;
                     `context_tokens` is then the mean over the batch, a whole number
    mode             engine overhead: sync or async. copy: to_host or to_device
    size_bytes       copy: bytes a call
    loaded           copy: while decode steps run
    nodes            graph: kernels in it
    """

    piece: str
    kind: str
    batch: int = 0
    new_tokens: int = 0
    context_tokens: int = 0
    prefix_tokens: int = 0
    long_seqs: int = 0
    long_context_tokens: int = 0
    mode: str = ""
    size_bytes: int = 0
    loaded: bool = False
    nodes: int = 0

    @property
    def key(self) -> str:
        """The point's name in files: its piece, kind, and every field that is not its default."""
        said = [f"{k}={v}" for k, v in asdict(self).items() if k not in ("piece", "kind") and v]
        return " ".join([f"{self.piece}:{self.kind}", *said])

    def contexts(self) -> list[int]:
        """Return KV tokens of each decoding or verifying sequence, `batch` numbers."""
        if not self.long_seqs:
            return [self.context_tokens] * self.batch
        short = self.batch - self.long_seqs
        rest = self.context_tokens * self.batch - self.long_seqs * self.long_context_tokens
        return [self.long_context_tokens] * self.long_seqs + [rest // short] * short


@dataclass(frozen=True)
class RunPoint:
    """One run of piece G: a closed loop of `concurrency` requests for `duration_s` of step time."""

    name: str
    concurrency: int
    prompt_tokens: int
    output_tokens: int
    chunk_tokens: int
    duration_s: float


def points(plan: str, pieces: Iterable[str] = PIECES) -> list[Point]:
    """Return the points of the pieces in the plan's own order; raises InputError for an unknown name."""
    if plan not in PLANS:
        raise InputError(nearest(plan, PLANS, what="plan"))
    wanted = list(pieces)
    for piece in wanted:
        if piece not in PIECES:
            raise InputError(nearest(piece, PIECES, what="piece"))
    full = plan == "full"
    makers = {"A": _steps, "B": _mixed, "C": _verification, "D": _overhead, "E": _copies, "F": _graphs}
    return [p for piece in PIECES if piece in wanted and piece in makers for p in makers[piece](full)]


def runs(plan: str, duration_s: float | None = None) -> list[RunPoint]:
    """Return the two runs of piece G; neither their batch nor their lengths are points of the other pieces."""
    span = duration_s if duration_s is not None else (30.0 if plan == "full" else 3.0)
    return [
        RunPoint("short", concurrency=24, prompt_tokens=700, output_tokens=160, chunk_tokens=2048, duration_s=span),
        RunPoint("long", concurrency=48, prompt_tokens=3000, output_tokens=240, chunk_tokens=1024, duration_s=span),
    ]  # fmt: skip


def ordered(found: list[Point], seed: int = 0) -> list[Point]:
    """Return the points in an order that is random, keyed by the seed, and the same everywhere."""
    return sorted(found, key=lambda p: draws.bits(seed, f"measure order {p.key}"))


def anchor() -> Point:
    """Return the point that is measured again and again: its time tells drift from everything else."""
    return Point("anchor", "decode", batch=64, new_tokens=1, context_tokens=_K)


def _steps(full: bool) -> Iterator[Point]:
    for batch in (1, 8, 32, 64, 128, 192, 256) if full else (1, 16, 64, 256):
        yield Point("A", "decode", batch, 1, 256)
    for context in (4 * _K, 16 * _K) if full else (8 * _K,):
        for batch in (1, 8, 64, 256) if full else (1, 32):
            yield Point("A", "decode", batch, 1, context)
    for tokens in (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192) if full else (64, 512, 4096):
        yield Point("A", "prefill", 1, tokens)
    for prefix in (4 * _K, 16 * _K) if full else (4 * _K,):
        for tokens in (128, 512, 2048) if full else (512,):
            yield Point("A", "prefill", 1, tokens, prefix_tokens=prefix)


def _mixed(full: bool) -> Iterator[Point]:
    for chunk in (256, 2048) if full else (512,):
        for batch in (16, 64, 128) if full else (32,):
            yield Point("B", "mixed", batch, chunk, _K)
    # A few long sequences among short ones: the mean context is a whole number, so the row is exact.
    yield Point("B", "decode", 64, 1, 1264, long_seqs=4, long_context_tokens=16 * _K)
    if full:
        yield Point("B", "decode", 128, 1, 992, long_seqs=8, long_context_tokens=8 * _K)


def _verification(full: bool) -> Iterator[Point]:
    for queries in (1, 2, 4, 8, 16) if full else (1, 4, 16):
        for batch in (1, 8, 32, 128) if full else (8,):
            for context in (_K, 8 * _K) if full else (2 * _K,):
                yield Point("C", "verify" if queries > 1 else "decode", batch, queries, context)


def _overhead(full: bool) -> Iterator[Point]:
    for mode in ("sync", "async"):
        for batch in (1, 16, 64, 128, 256) if full else (1, 64):
            yield Point("D", "decode", batch, 1, 256, mode=mode)
    yield Point("D", "idle", mode="http")


def _copies(full: bool) -> Iterator[Point]:
    for size in (16, 18, 20, 22, 24, 26, 28) if full else (18, 24):
        for mode in ("to_host", "to_device"):
            for loaded in (False, True):
                yield Point("E", "copy", mode=mode, size_bytes=1 << size, loaded=loaded)


def _graphs(full: bool) -> Iterator[Point]:
    for nodes in (16, 64, 256, 1024, 4096) if full else (64, 512):
        yield Point("F", "graph", nodes=nodes)
