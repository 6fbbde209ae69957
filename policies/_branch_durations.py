"""What stages took so far, by template: canonical executions and fills alike."""

from __future__ import annotations

from collections.abc import Iterable


class Durations:
    """Mean execution by fingerprint, ns, and how much of it is residence in an engine. `learn*` mutate."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[int, int]] = {}
        self._engine: dict[int, tuple[int, int]] = {}

    def learn(self, fingerprint: int, exec_ns: int) -> None:
        """Count one execution."""
        count, total = self._of.get(fingerprint, (0, 0))
        self._of[fingerprint] = (count + 1, total + exec_ns)

    def learn_engine(self, fingerprint: int, exec_ns: int, engine_ns: int) -> None:
        """Note how much of one execution was spent in an engine."""
        total, engine = self._engine.get(fingerprint, (0, 0))
        self._engine[fingerprint] = (total + exec_ns, engine + engine_ns)

    def engine_ns(self, fingerprint: int, elapsed_ns: int) -> int:
        """Return how much of an execution cut short was likely spent in an engine: all, if none was ever seen."""
        total, engine = self._engine.get(fingerprint, (0, 0))
        return min(elapsed_ns * engine // total, elapsed_ns) if total else elapsed_ns

    def mean_ns(self, fingerprint: int) -> int:
        """Return the mean, 0 where the template was never seen."""
        count, total = self._of.get(fingerprint, (0, 0))
        return total // count if count else 0

    def path_ns(self, fingerprints: Iterable[int]) -> int:
        """Return the sum of the means, 0 where one template was never seen."""
        means = [self.mean_ns(f) for f in fingerprints]
        return sum(means) if all(means) else 0
