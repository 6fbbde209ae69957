"""Calls into a policy that must not take the engine down: counted, timed, and over at the first offence."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from policies.api import Policy

_SLOW_CALLS_MAX = 3


class PolicyGuard:
    """One policy and its state inside a host. Every method but the properties mutates.

    A policy that raises, or that answers what the host must refuse (`refuse`), is dropped for good: its state may be
    half changed. One that takes more than `call_ns_max` three times is dropped too (0: however slow it is). A call
    that never returns cannot be ended from here.

    calls, cost_ns   by event
    dropped          why, "" while the policy is in office
    report           gets the one line that says so
    """

    def __init__(
        self,
        policy: Policy[Any],
        state: Any,
        report: Callable[[str], None],
        call_ns_max: int,
        clock_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self.policy = policy
        self.state = state
        self.dropped = ""
        self.calls: dict[str, int] = {}
        self.cost_ns: dict[str, int] = {}
        self.slow_calls = 0
        self._report = report
        self._call_ns_max = call_ns_max
        self._clock_ns = clock_ns

    @property
    def alive(self) -> bool:
        """Whether the policy is still asked."""
        return not self.dropped

    def call(self, event: str, *args: Any) -> Any:
        """Return what the policy answers to `event`, None once it is dropped."""
        if self.dropped:
            return None
        start = self._clock_ns()
        try:
            return getattr(self.policy, event)(self.state, *args)
        except Exception as e:
            self.refuse(f"{event} raised {type(e).__name__}: {e}")
            return None
        finally:
            took = self._clock_ns() - start
            self.calls[event] = self.calls.get(event, 0) + 1
            self.cost_ns[event] = self.cost_ns.get(event, 0) + took
            if 0 < self._call_ns_max < took:
                self._slow(event, took)

    def refuse(self, why: str) -> None:
        """Drop the policy, if that has not happened before."""
        if not self.dropped:
            self.dropped = why
            self._report(f"{type(self.policy).__name__} dropped, the engine's own order from here on: {why}")

    def _slow(self, event: str, took_ns: int) -> None:
        self.slow_calls += 1
        if self.slow_calls >= _SLOW_CALLS_MAX:
            self.refuse(
                f"{event} took {took_ns / 1e6:.1f} ms, the {self.slow_calls}rd call above "
                f"{self._call_ns_max / 1e6:g} ms"
            )
