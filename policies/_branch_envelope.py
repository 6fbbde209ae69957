"""The causal load envelope V_H of DynBranch section 3.4, Eq. (3), in the readings that its text allows.

A fill holds its slots for seconds, so an idle instant underprices it: rising load counts at once, falling load relaxes
over a window of about one fill's execution.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

_PARTS = 64


class Pressure(NamedTuple):
    """One load reading: fills in flight, their KV tokens, canonical load in [0, 1], canonical requests."""

    fills: float
    kv_tokens: float
    load: float
    seqs: float

    def most(self, other: Pressure) -> Pressure:
        """Return the larger of both, component by component."""
        return Pressure(*(max(a, b) for a, b in zip(self, other, strict=True)))


class Envelope:
    """Readings of the last window. `add` mutates.

    max         running maximum over the window (the notation V_H, the word envelope): the default
    max_mean    the larger of now and the window's time average: falls linearly over one window
    peak_decay  every past reading counts, less in proportion to its age
    ewma        the larger of now and half the old value plus half the new, at each reading
    instant     no memory: the ablation that underprices
    """

    def __init__(self, kind: str, window_ns: int) -> None:
        self.kind, self.window_ns = kind, window_ns
        self._samples: deque[tuple[int, Pressure]] = deque()
        # For the running maximum: per component, readings that no later one has exceeded, oldest (largest) first.
        self._tops: tuple[deque[tuple[int, float]], ...] = tuple(deque() for _ in Pressure._fields)
        self._smooth: Pressure | None = None

    @property
    def samples(self) -> int:
        """Readings in memory."""
        return len(self._samples) + sum(map(len, self._tops))

    def add(self, now_ns: int, now: Pressure) -> None:
        """Note a reading. Those closer together than 1/64 of the window become one, the larger."""
        since = now_ns - self.window_ns
        near = now_ns - self.window_ns // _PARTS
        if self.kind == "max":
            for top, x in zip(self._tops, now, strict=True):
                while top and top[-1][1] <= x:
                    top.pop()
                if top and top[-1][0] > near:
                    continue  # a larger reading just before stands for this one
                top.append((now_ns, x))
                while top[0][0] < since:
                    top.popleft()
        elif self.kind == "ewma":
            old = self._smooth
            mean = now if old is None else Pressure(*((a + b) / 2 for a, b in zip(old, now, strict=True)))
            self._smooth = now.most(mean)
        elif self.kind != "instant":
            samples = self._samples
            if samples and samples[-1][0] > near:
                at, last = samples[-1]
                samples[-1] = (at, now if self.kind == "max_mean" else now.most(last))
                return
            samples.append((now_ns, now))
            # The last reading before the window still held when the window began.
            while len(samples) > 1 and samples[1][0] <= since:
                samples.popleft()

    def value(self, now_ns: int, now: Pressure) -> Pressure:
        """Return V_H, given the reading of this moment. Does not mutate."""
        since = now_ns - self.window_ns
        if self.kind == "max":
            return Pressure(*(_top(top, since, x) for top, x in zip(self._tops, now, strict=True)))
        if self.kind == "ewma":
            return now if self._smooth is None else now.most(self._smooth)
        if self.kind == "max_mean":
            return now.most(self._mean(since, now_ns, now))
        out = now
        for t, v in self._samples:
            if t >= since:
                out = out.most(_scaled(v, 1 - (now_ns - t) / max(self.window_ns, 1)))
        return out

    def _mean(self, since_ns: int, now_ns: int, now: Pressure) -> Pressure:
        """Average over the window; each reading holds until the next one, the first one from the start on."""
        samples = self._samples
        if not samples or now_ns <= since_ns:
            return now
        total = [0.0, 0.0, 0.0, 0.0]
        ends = [*[t for t, _ in samples][1:], now_ns]
        for i, ((t, v), end) in enumerate(zip(samples, ends, strict=True)):
            begin = since_ns if i == 0 else max(t, since_ns)
            held = max(min(end, now_ns) - begin, 0) / (now_ns - since_ns)
            for k in range(4):
                total[k] += v[k] * held
        return Pressure(*total)


def _top(top: deque[tuple[int, float]], since_ns: int, now: float) -> float:
    for t, x in top:
        if t >= since_ns:
            return max(x, now)
    return now


def _scaled(v: Pressure, factor: float) -> Pressure:
    return Pressure(*(x * max(factor, 0.0) for x in v))
