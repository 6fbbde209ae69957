"""Progress for people, on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

LINE_EVERY_S = 5.0
BAR_EVERY_S = 0.1


class Progress:
    """Counts jobs, with fractions of those that run. Mutated by every call."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total = total
        self._stream = stream if stream is not None else sys.stderr
        self._fractions: dict[str, float] = {}
        self._finished = 0
        self._failed = 0
        self._began = self._last = time.monotonic()
        self._bar: Any = None
        if total and self._stream.isatty():
            from tqdm import tqdm

            form = "{desc} {percentage:3.0f}% |{bar}| {n:.1f}/{total} runs [{elapsed}<{remaining}]"
            self._bar = tqdm(total=total, file=self._stream, bar_format=form, desc="simulating", leave=False)

    def part(self, run_id: str, done: int, total: int) -> None:
        """A running job is `done`/`total` through."""
        self._fractions[run_id] = min(done / total, 1.0) if total > 0 else 0.0
        self._show()

    def finished(self, run_id: str, *, failed: bool = False) -> None:
        """A job ended."""
        self._fractions.pop(run_id, None)
        self._finished += 1
        self._failed += failed
        self._show(force=self._finished == self.total)

    def close(self) -> None:
        """Take the bar away. Twice does no harm."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _show(self, *, force: bool = False) -> None:
        done = self._finished + sum(self._fractions.values())
        if self._bar is not None:
            self._bar.n = min(done, self.total)
            if self._failed:
                self._bar.set_description_str(f"simulating ({self._failed} failed)", refresh=False)
        now = time.monotonic()
        if not force and now - self._last < (LINE_EVERY_S if self._bar is None else BAR_EVERY_S):
            return
        self._last = now
        if self._bar is not None:
            self._bar.refresh()
        else:
            failed = f", {self._failed} failed" if self._failed else ""
            percent = 100 * done / self.total
            text = f"{self._finished}/{self.total} runs{failed}, {percent:.0f} %, {now - self._began:.0f} s"
            print(text, file=self._stream, flush=True)
