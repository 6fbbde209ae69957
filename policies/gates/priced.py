"""DynBranch's gates: a learned return opens drafting, a load price admits fills (section 3.4, Eqs. 3 to 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from policies._branch_envelope import Envelope, Pressure
from policies._branch_price import Price
from policies._branch_rates import Mean, Means, Rate, upper_quantile
from policies.api import (
    Admission,
    BranchOutcome,
    BranchView,
    FillOption,
    FillOutcome,
    Gate,
    HostInfo,
    LoadView,
)
from traces.errors import InputError

MS = 1_000_000


@dataclass
class PricedState:
    """What the gate has seen. `pending`: openings not settled yet, by (workflow, stage)."""

    host: HostInfo
    price: Price
    envelope: Envelope
    decisions: int = 1
    selected: dict[int, Rate] = field(default_factory=dict)
    usable: Rate = field(default_factory=Rate)
    saved: Means = field(default_factory=Means)
    engine: Means = field(default_factory=Means)
    window_ns: dict[int, int] = field(default_factory=dict)
    returns: dict[tuple[int, int], Mean] = field(default_factory=dict)
    pending: dict[tuple[int, int], tuple[int, tuple[int, int], bool]] = field(
        default_factory=dict
    )  # True: censored
    resident: Mean = field(default_factory=Mean)


@dataclass(frozen=True)
class Priced(Gate[PricedState]):
    """Action 0 learns one aggregate return a branch entry; Action 1 prices every fill at the projected load.

    action0       priced (Eq. 4), or open: drafting is never refused
    action1       priced (Eq. 5), threshold (Eq. 6, the same decisions), fixed (p_star instead of the price), or
                  pay_always (the cost is charged on winning too: the other reading of Eq. 5)
    p_star        threshold of action1=fixed
    envelope      max, max_mean, peak_decay, ewma or instant (Eq. 3)
    window_ms     window H of the envelope, 0: the mean execution of a fill, learned
    feedback      the price counts those who come later, too: whoever is delayed stays and delays the next
    price_error   factor on the price, for the sweep of what a wrong price does
    audit         chance that a refusal is overruled, so that closed gates keep learning
    optimism      standard errors added to the mean return
    prior_ms      scale of returns, gains and executions before any was seen
    censor_ms     an opening that has not settled by then counts as a return of 0 for the time being
    load_buckets  returns are learned by coordinate and load, in this many steps of load
    probe_ms      period of the load probe, 0: an eighth of the window
    """

    action0: Literal["priced", "open"] = "priced"
    action1: Literal["priced", "threshold", "fixed", "pay_always"] = "priced"
    p_star: float = 0.5
    envelope: Literal["max", "max_mean", "peak_decay", "ewma", "instant"] = "max"
    window_ms: int = 0
    feedback: bool = False
    price_error: float = 1.0
    audit: float = 0.05
    optimism: float = 1.0
    prior_ms: int = 1000
    censor_ms: int = 60_000
    load_buckets: int = 4
    probe_ms: int = 0

    label = "DynBranch"
    source = "DynBranch section 3.4"

    def __post_init__(self) -> None:
        for name in ("p_star", "audit"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"gate.{name}={getattr(self, name)}: expected a number in [0, 1]")
        for name in ("price_error", "optimism", "window_ms", "censor_ms", "probe_ms"):
            if not getattr(self, name) >= 0:
                raise InputError(f"gate.{name}={getattr(self, name)}: expected at least 0")
        for name in ("prior_ms", "load_buckets"):
            if getattr(self, name) < 1:
                raise InputError(f"gate.{name}={getattr(self, name)}: expected at least 1")

    def new_state(self, host: HostInfo) -> PricedState:
        """Return a state that knows the price surface and nothing else."""
        window = self.window_ms or self.prior_ms
        return PricedState(
            host, Price(host, self.price_error, feedback=self.feedback), Envelope(self.envelope, window * MS)
        )

    def open(self, state: PricedState, branch: BranchView, load: LoadView) -> bool:
        """Action 0: open while the optimistic return of this coordinate at this load is positive, or on audit."""
        state.envelope.add(load.now_ns, _pressure(load))
        if self.action0 == "open":
            return True
        self._censor(state, load.now_ns)
        busy = state.envelope.value(load.now_ns, _pressure(load)).load
        where = (branch.coordinate, min(int(busy * self.load_buckets), self.load_buckets - 1))
        seen = state.returns.get(where)
        good = seen is None or seen.count == 0 or seen.optimistic(self.optimism, self.prior_ms * MS) > 0
        if not good and state.host.draw("gate audit", branch.workflow, branch.stage) >= self.audit:
            return False
        state.pending[branch.workflow, branch.stage] = (load.now_ns, where, False)
        return True

    def admit(
        self, state: PricedState, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        """Action 1: the best by utility while it is positive, each at the load that the ones before it make."""
        now = load.now_ns
        pressure = state.envelope.value(now, _pressure(load))
        slots, tokens = load.fills_max - load.fills, load.fill_kv_tokens_max - load.fill_kv_tokens
        left = self._window_left_ns(state, branch, now)
        rows: list[int] = []
        audits: list[int] = []
        rest = list(range(len(options))) if left > 0 else []
        chance = {i: self._useful(state, options[i].candidate.rank) for i in rest}
        while rest and slots > 0:
            fits = [i for i in rest if options[i].kv_tokens <= tokens]
            if not fits:
                break
            utility = {i: self._utility_ns(state, options[i], chance[i], left, pressure) for i in fits}
            best = max(fits, key=lambda i: (utility[i], -i))
            if utility[best] <= 0:
                trial = [i for i in fits if self._audited(state, branch, options[i])]
                if not trial:
                    break
                best = trial[0]
                audits.append(best)
            rows.append(best)
            rest.remove(best)
            slots -= 1
            tokens -= options[best].kv_tokens
            kv = options[best].kv_tokens
            pressure = pressure._replace(fills=pressure.fills + 1, kv_tokens=pressure.kv_tokens + kv)
        return Admission(tuple(rows), tuple(audits))

    def settle(self, state: PricedState, outcome: BranchOutcome) -> None:
        """Learn selection by rank, timely use, gains and durations; credit the entry's aggregate return (Eq. 4)."""
        branch = outcome.branch
        state.decisions += 1
        if outcome.window_ns >= 0:
            known = state.window_ns.get(branch.coordinate, 0)
            state.window_ns[branch.coordinate] = max(known, outcome.window_ns)
            for candidate in outcome.candidates:
                rate = state.selected.setdefault(candidate.rank, Rate())
                rate.add(candidate.outcome == outcome.chosen)
        for fill in outcome.fills:
            if fill.selected:
                state.usable.add(fill.promoted > 0)
            if fill.promoted:
                state.saved.add(fill.option.key, fill.saved_ns)
            state.engine.add(fill.option.key, fill.engine_ns)
            state.resident.add(fill.exec_ns)
            if not self.window_ms:
                state.envelope.window_ns = max(int(state.resident.mean()), MS)
        at = state.pending.pop((branch.workflow, branch.stage), None)
        if at is None:
            return
        _, where, censored = at
        worth = self.aggregate_return_ns(state, outcome)
        seen = state.returns.setdefault(where, Mean())
        if censored:
            seen.amend(0, worth)
        else:
            seen.add(worth)

    def probe(self, state: PricedState, load: LoadView) -> None:
        """Note the load, also while the gate is closed."""
        state.envelope.add(load.now_ns, _pressure(load))

    def probe_period_ns(self) -> int | None:
        """Eight probes a window."""
        return self.probe_ms * MS if self.probe_ms else (self.window_ms or self.prior_ms) * MS // 8

    def aggregate_return_ns(self, state: PricedState, outcome: BranchOutcome) -> int:
        """Return R_b of Eq. (4) in ns: what consumed fills saved, less drafting, all fills' price, and idle waits."""
        cost = sum(self._paid_ns(state, fill) for fill in outcome.fills)
        waited = sum(
            f.stalled_ns for f in outcome.fills if not f.promoted
        )  # promoted ones are net of their wait
        return outcome.saved_ns - outcome.setup_ns - waited - round(cost)

    def _paid_ns(self, state: PricedState, fill: FillOutcome) -> float:
        return state.price.cost_ns(_pressure(fill.load), fill.option, fill.engine_ns)

    def _censor(self, state: PricedState, now_ns: int) -> None:
        """Openings that are overdue count as 0 until they settle (delayed, one-sidedly censored feedback)."""
        for key, (since, where, censored) in list(state.pending.items()):
            if now_ns - since < self.censor_ms * MS:
                return  # the others are younger
            if not censored:
                state.returns.setdefault(where, Mean()).add(0)
                state.pending[key] = (since, where, True)

    def _useful(self, state: PricedState, rank: int) -> float:
        """Return p of section 3.4: optimistic selection of the rank times timely use given selection."""
        rate = state.selected.get(rank) or Rate()
        return upper_quantile(rate.successes, rate.failures, state.decisions) * state.usable.mean

    def _window_left_ns(self, state: PricedState, branch: BranchView, now_ns: int) -> float:
        """Return the longest that this branch's window may still last, by the longest one seen at its coordinate."""
        longest = state.window_ns.get(branch.coordinate)
        return float("inf") if longest is None else longest - (now_ns - branch.opened_ns)

    def _gain_ns(self, state: PricedState, option: FillOption, left_ns: float) -> float:
        saved = state.saved.get(option.key)
        if saved is None:
            saved = float(option.exec_ns or self.prior_ms * MS)
        return min(saved, left_ns)

    def _utility_ns(
        self, state: PricedState, option: FillOption, p: float, left_ns: float, pressure: Pressure
    ) -> float:
        """Return U_s of Eq. (5) or what stands for it; positive means admit."""
        if self.action1 == "fixed":
            return p - self.p_star
        gain = self._gain_ns(state, option, left_ns)
        engine = state.engine.get(option.key)
        if engine is None:
            engine = float(option.exec_ns or self.prior_ms * MS)
        cost = state.price.cost_ns(pressure, option, engine)
        if self.action1 == "pay_always":
            return p * gain - cost
        utility = p * gain - (1 - p) * cost
        if self.action1 == "threshold":  # decides by Eq. (6), orders what it admits by Eq. (5)
            admits = gain + cost > 0 and p > cost / (gain + cost)
            return max(utility, 1e-9) if admits else min(utility, 0.0)
        return utility

    def _audited(self, state: PricedState, branch: BranchView, option: FillOption) -> bool:
        draw = state.host.draw("fill audit", branch.workflow, branch.stage, option.candidate.rank)
        return draw < self.audit


def _pressure(load: LoadView) -> Pressure:
    return Pressure(load.fills, load.fill_kv_tokens, load.canonical_load, load.canonical_seqs)
