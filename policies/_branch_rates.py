"""What the gates of DynBranch learn of settled branches: selection by rank, timely use, gains, windows, returns."""

from __future__ import annotations

import math
from collections.abc import Hashable


def upper_quantile(successes: float, failures: float, decisions: int) -> float:
    """Return the 1 - 1/t quantile of a Beta posterior over a uniform prior: Bayes-UCB with c = 0, t decisions so far.

    Rounded to six places, so that no decision hangs on the last bits of a special function.
    """
    # Here: whoever lists policies should not wait for scipy to load.
    from scipy.special import betaincinv

    level = 1.0 - 1.0 / max(decisions, 2)
    return round(float(betaincinv(1.0 + successes, 1.0 + failures, level)), 6)


class Rate:
    """Successes of trials under a Beta(1, 1) prior. `add` mutates."""

    __slots__ = ("failures", "successes")

    def __init__(self) -> None:
        self.successes = self.failures = 0

    def add(self, success: bool) -> None:
        """Count a trial."""
        if success:
            self.successes += 1
        else:
            self.failures += 1

    @property
    def mean(self) -> float:
        """Posterior mean."""
        return (1 + self.successes) / (2 + self.successes + self.failures)


class Mean:
    """Running mean and spread of whole numbers (ns), exact in integers. `add` and `amend` mutate."""

    __slots__ = ("count", "squares", "total")

    def __init__(self) -> None:
        self.count = self.total = self.squares = 0

    def add(self, x: int) -> None:
        """Add a sample."""
        self.count += 1
        self.amend(0, x)

    def amend(self, old: int, new: int) -> None:
        """Replace a sample that was provisional."""
        self.total += new - old
        self.squares += new * new - old * old

    def mean(self) -> float:
        """Return the mean; there must be a sample."""
        return self.total / self.count

    def optimistic(self, z: float, prior_ns: int) -> float:
        """Return mean + z * standard error, the spread shrunk towards one sample of `prior_ns` away from the mean."""
        n = self.count
        spread = max(self.squares - self.total * self.total / n, 0.0) + float(prior_ns) ** 2
        return self.total / n + z * math.sqrt(spread / n) / math.sqrt(n)


class Means:
    """Means by key. `add` mutates."""

    def __init__(self) -> None:
        self._of: dict[Hashable, Mean] = {}

    def add(self, key: Hashable, x: int) -> None:
        """Add a sample under the key."""
        self._of.setdefault(key, Mean()).add(x)

    def get(self, key: Hashable) -> float | None:
        """Return the mean under the key, None before any sample."""
        mean = self._of.get(key)
        return None if mean is None else mean.mean()
