"""Laws of the families around branches: gates, candidates, reuse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from policies._state_content import content
from policies.api import CandidateDrafter, Gate, HostInfo, ReusePolicy
from policies.branching import BranchingConfig
from policies.reuse_index import EVICTION
from policies.views import (
    BranchOutcome,
    BranchView,
    Candidate,
    FillOption,
    FillOutcome,
    LoadView,
    RunningFill,
    Scope,
    StageView,
)
from traces import draws

SCORES = ("retrieval", "entity", "draft_lm")


class ToyBranchOracle:
    """Knows that branch i resolves to outcome i % 4."""

    def choice(self, branch: BranchView) -> tuple[int, int]:
        """Return the outcome and its arguments."""
        return branch.stage % 4, branch.stage % 4


def check_gate(policy: Gate[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """Yes or no; distinct rows; audits among them; admit leaves the state alone; nothing over budget; equal reruns."""
    BranchingConfig().styled(policy)
    for seed in seeds:
        runs = []
        for _ in range(2):
            state = policy.new_state(host)
            out: list[object] = []
            for i in range(60):
                branch, load, options = toy_branch(seed, i), toy_load(seed, i), toy_options(seed, i)
                where = f"seed {seed}, branch {i}"
                policy.probe(state, load)
                depth = policy.depth(state, branch)
                assert depth is None or (isinstance(depth, int) and depth >= 0), f"{where}: depth {depth!r}"
                opened = policy.open(state, branch, load)
                assert isinstance(opened, bool), f"{where}: open returned {opened!r}"
                before = content(state)
                admission = policy.admit(state, branch, options, load)
                assert content(state) == before, f"{where}: admit changed the state"
                rows = admission.rows
                assert len(set(rows)) == len(rows), f"{where}: admitted {rows}, one of them twice"
                assert all(0 <= r < len(options) for r in rows), f"{where}: admitted {rows} of {len(options)}"
                assert set(admission.audits) <= set(rows), f"{where}: audits {admission.audits} not in {rows}"
                full = tuple(
                    LoadView(load.now_ns, fills, kv, 8192, 0.5, 8, 4) for fills, kv in ((8, 100), (1, 8192))
                )
                for busy in full:
                    taken = [options[r].kv_tokens for r in policy.admit(state, branch, options, busy).rows]
                    assert not any(taken), f"{where}: admitted fills beyond the KV reservation"
                    assert busy.fills < 8 or not taken, f"{where}: admitted fills beyond the slots"
                running = [
                    RunningFill(branch, o.candidate, branch.opened_ns, o.kv_tokens, False) for o in options
                ]
                revoked = tuple(policy.revoke(state, running, load))
                assert all(0 <= r < len(running) for r in revoked), f"{where}: revoked {revoked}"
                assert len(set(revoked)) == len(revoked), f"{where}: revoked {revoked}, one of them twice"
                assert policy.revokes() or not revoked, f"{where}: revoked, though revokes() is False"
                policy.settle(state, toy_outcome(seed, i, opened, [options[r] for r in rows]))
                out.append((depth, opened, rows, admission.audits, revoked))
            runs.append(out)
        assert runs[0] == runs[1], f"seed {seed}: equal histories, other decisions"


def check_candidates(policy: CandidateDrafter[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """At most `limit` distinct candidates, ranked 0, 1, ..., scores in [0, 1], from the menu if any; equal reruns."""
    for seed in seeds:
        runs = []
        for _ in range(2):
            state = policy.new_state(host)
            out = []
            for i in range(60):
                branch, limit = toy_branch(seed, i), draws.bits(seed, "toy limit", i) % 5
                cost = policy.cost_ns(state, branch, limit)
                got = list(policy.propose(state, branch, limit))
                where = f"seed {seed}, branch {i}: {got}"
                assert cost is None or (isinstance(cost, int) and cost >= 0), f"{where}: cost {cost!r}"
                assert len(got) <= limit, f"{where}: the limit is {limit}"
                assert [c.rank for c in got] == list(range(len(got))), f"{where}: ranks must be 0, 1, ..."
                assert len({(c.outcome, c.arguments) for c in got}) == len(got), f"{where}: one twice"
                assert all(0 <= c.score <= 1 for c in got), f"{where}: a score is outside [0, 1]"
                if branch.menu:
                    assert all(c.outcome in branch.menu for c in got), (
                        f"{where}: not on the menu {branch.menu}"
                    )
                policy.observe(state, branch, i % 4, i % 4)
                out.append((cost, got))
            runs.append(out)
        assert runs[0] == runs[1], f"seed {seed}: equal histories, other candidates"


def check_reuse(policy: ReusePolicy[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """Equal stages get equal names, whatever their workflow and number; unequal ones do not; outermost first."""
    most, eviction = policy.limits()
    assert most >= 0, f"limits: {most} records"
    assert eviction in EVICTION, f"limits: eviction {eviction!r}, allowed: {', '.join(EVICTION)}"
    for seed in seeds:
        state, other = policy.new_state(host), policy.new_state(host)
        seen: dict[object, object] = {}
        for i in range(60):
            stage = toy_stage(seed, i)
            twin = StageView(i + 1000, i + 1000, *_content(stage))
            names = list(policy.names(state, stage))
            where = f"seed {seed}, stage {i}: names {names}"
            assert len(set(names)) == len(names), f"{where}: one twice"
            assert names == list(policy.names(other, stage)), f"{where}: equal histories, other names"
            assert names == list(policy.names(state, twin)), f"{where}: an equal stage has other names"
            spans = [name.stages for name in names]
            assert spans == sorted(spans, reverse=True), f"{where}: outermost must come first"
            assert policy.active() or not names, f"{where}: named, though active() is False"
            covers = {1, *(scope.stages for scope in stage.scopes)}
            assert set(spans) <= covers, f"{where}: a name covers a part that does not begin here"
            for name in names:
                policy.prefilled(state, stage, name)
                same = seen.setdefault(name, _determinants(stage, name.stages))
                assert same == _determinants(stage, name.stages), f"{where}: {name} names unequal work"


def _determinants(stage: StageView, stages: int) -> object:
    """Return what determines the outputs of the named work: what an equal name must promise."""
    if stages > 1:
        return [(s.fingerprint, s.inputs, s.parameters) for s in stage.scopes if s.stages == stages]
    return stage.fingerprint, stage.rendered_input, stage.parameters


def _content(stage: StageView) -> tuple[Any, ...]:
    return (
        stage.agent, stage.fingerprint, stage.rendered_input, stage.parameters, stage.read_set, stage.scopes,
        stage.prefix_input, stage.reusable,
    )  # fmt: skip


def toy_stage(seed: int, i: int) -> StageView:
    """Return a stage whose content recurs; some begin a part of three stages, some a whole request of six."""
    bits = draws.bits(seed, "toy stage", i)
    content = (bits % 5, bits >> 8 & 7, bits >> 16 & 1)
    scopes = []
    if bits >> 24 & 1:
        scopes.append(Scope("request", 9, content[1], content[2], 6, nll=float(content[1])))
    if bits >> 25 & 1:
        scopes.append(Scope("subgraph", content[0], content[1], content[2], 3))
    prefix = draws.mix(content[0] << 8 | content[1] << 4 | content[2]) >> 1
    return StageView(i, i, bits % 3, *content, ((bits >> 20 & 3, 0),), tuple(scopes), prefix)


def toy_branch(seed: int, i: int) -> BranchView:
    """Return a branch entry with four options, or in an open space without a menu."""
    bits = draws.bits(seed, "toy branch", i)
    history = tuple(bits >> s & 3 for s in range(8, 8 + 2 * (i % 4), 2))
    menu = (0, 1, 2, 3) if bits >> 40 & 3 else ()
    scores = {
        kind: tuple(draws.uniform(seed, f"toy {kind}", i, k) - 0.2 for k in range(len(menu)))
        for kind in SCORES
    }
    return BranchView(i // 4, i, bits % 6, bits >> 4 & 1, i * 10**9, history, menu, menu, scores, not menu)


def toy_load(seed: int, i: int) -> LoadView:
    """Return some load with room for fills."""
    bits = draws.bits(seed, "toy load", i)
    busy = draws.uniform(seed, "toy busy", i)
    return LoadView(i * 10**9, bits % 8, bits >> 8 & 8191, 8192, busy, 8, bits >> 32 & 31)


def toy_options(seed: int, i: int) -> list[FillOption]:
    """Return up to four candidates with what filling them takes; some need no engine."""
    count = draws.bits(seed, "toy candidates", i) % 5
    out = []
    for k in range(count):
        bits = draws.bits(seed, "toy option", i, k)
        kv = bits % 900 if bits >> 16 & 7 else 0
        candidate = Candidate(k, k, 1 / (2 + k), k)
        out.append(
            FillOption(
                candidate, bits >> 20 & 3, 1 + (bits >> 24 & 1), kv, kv // 2, bits >> 30 & (1 << 31) - 1
            )
        )
    return out


def toy_outcome(seed: int, i: int, opened: bool, filled: list[FillOption]) -> BranchOutcome:
    """Return how branch i settled: option i % 4 won."""
    load = toy_load(seed, i)
    fills = tuple(
        FillOutcome(
            o, "promoted" if o.candidate.outcome == i % 4 else "unselected", o.candidate.outcome == i % 4,
            int(o.candidate.outcome == i % 4), o.stages, 9 * 10**8, 8 * 10**8, 3 * 10**8, 7 * 10**8, 10**7, load,
        )
        for o in filled
    )  # fmt: skip
    candidates = tuple(o.candidate for o in filled)
    return BranchOutcome(
        toy_branch(seed, i),
        i % 4,
        opened,
        candidates,
        fills,
        5 * 10**7,
        7 * 10**8,
        3 * 10**8,
        10**7,
        10**9,
        load,
        i % 4,
    )
