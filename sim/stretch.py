"""A stretch of steps that are one event: equal but for context, so that each lasts a constant longer than the last."""

from __future__ import annotations


class Stretch:
    """Times of `steps` steps from `start_ps`: the first lasts `first_ps`, each next `growth_ps` longer.

    All in integers, so that cutting a stretch anywhere gives the times its single steps would have had. Mutated by
    `begin` and by assignment to `steps`, `first_ps`, `growth_ps`.
    """

    __slots__ = ("first_ps", "growth_ps", "start_ps", "steps")

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, now_ps: int) -> None:
        """Start anew, as one step of no length."""
        self.steps = 1
        self.start_ps = now_ps
        self.first_ps = 0
        self.growth_ps = 0

    def time_of(self, steps: int) -> int:
        """Return when the first `steps` steps have ended, in ps."""
        return self.start_ps + steps * self.first_ps + self.growth_ps * (steps * (steps - 1) // 2)

    def ended_by(self, now_ps: int) -> int:
        """Return how many steps have ended by `now_ps` (a binary search)."""
        low, high = 0, self.steps
        while low < high:
            middle = (low + high + 1) // 2
            if self.time_of(middle) <= now_ps:
                low = middle
            else:
                high = middle - 1
        return low

    def begun_by(self, now_ps: int) -> int:
        """Return how many steps began before `now_ps`; one that begins at that instant has not."""
        ended = self.ended_by(now_ps)
        return ended if self.time_of(ended) == now_ps else min(ended + 1, self.steps)

    def cut_at(self, now_ps: int) -> bool:
        """End at the first boundary not before `now_ps`, after at least one step; say whether that is earlier."""
        if self.steps == 1:
            return False
        steps = self.ended_by(now_ps)
        if steps == 0 or self.time_of(steps) < now_ps:
            steps += 1
        if steps >= self.steps:
            return False
        self.steps = steps
        return True
