"""The host tier: what is copied when, what comes back when that is cheaper, and the link in between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_cases import OPEN, STEP_NS, STEP_PS, Case, Result, run

from policies.costs import Profile
from sim.clock import PS_PER_S
from sim.config import HostTierConfig
from sim.pcie import Link
from sim.worlds import flat_profile
from traces.tables import CACHE_EVENTS

FAR_NS = 1_000 * STEP_NS
BLOCK_BYTES = 4 * 1000  # of a block of four tokens in the flat profile


def slow_prefill() -> Profile:
    """A step costs 1 us a token, so that a copy of 4 us (a block at 1 GB/s) and its 6 us overhead can pay."""
    return replace(flat_profile(0), linear_tokens=(1, 1000), linear_ps=(STEP_PS, 1000 * STEP_PS))


def tiered(blocks: int, uses: int = 1, *, profile: Profile | None = None, **tier: object) -> Result:
    """A prefix of four blocks is used `uses` times, displaced by another, and asked for again."""
    case = Case()
    for use in range(uses):
        case.call(17, 1, units=[1, 2, 3, 4], at_ns=use * FAR_NS)
    case.call(4 * blocks, 1, units=range(50, 50 + blocks), at_ns=uses * FAR_NS)
    case.call(17, 1, units=[1, 2, 3, 4], at_ns=(uses + 1) * FAR_NS)
    options = {"ratio": 4.0, "write": "write_through", "load_back": "always", "min_load_tokens": 1, **tier}
    return run(
        case, blocks=blocks, config=replace(OPEN, host_tier=HostTierConfig(**options)), profile=profile
    )


def test_what_left_hbm_comes_back_from_the_host() -> None:
    result = tiered(8)
    last = result.requests[2]
    assert (last["gpu_hit_tokens"], last["host_hit_tokens"], last["prefilled_tokens"]) == (0, 16, 1)
    # The copy: 6 us of overhead and 16 tokens of 1000 bytes at 1 GB/s; the prefill starts when it has arrived.
    assert last["first_token_ns"] - last["admitted_ns"] == 6_000 + 16_000 + STEP_NS
    rows = [b for b in result.tables["blocks"] if CACHE_EVENTS[b["event"]] == "load_back"]
    assert [(b["stage"], b["blocks"], b["time_ns"]) for b in rows] == [(2, 4, 2 * FAR_NS)]


def test_without_a_tier_it_is_recomputed() -> None:
    last = tiered(8, ratio=0.0).requests[2]
    assert (last["host_hit_tokens"], last["prefilled_tokens"]) == (0, 17)


@pytest.mark.parametrize(
    ("write", "uses", "hit"),
    [
        ("write_through", 1, 16),
        ("write_through_selective", 1, 0),  # seen once: not worth a copy
        ("write_through_selective", 2, 16),
        ("write_back", 1, 16),
    ],
)
def test_write_policies_copy_at_insert_at_the_second_use_or_at_eviction(
    write: str, uses: int, hit: int
) -> None:
    assert tiered(8, uses, write=write).requests[uses + 1]["host_hit_tokens"] == hit


def test_write_back_copies_only_what_leaves() -> None:
    def copied(write: str) -> int:
        case = Case()
        case.call(17, 1, units=[1, 2, 3, 4])
        tier = HostTierConfig(ratio=4.0, write=write, min_load_tokens=1)
        return run(case, blocks=8, config=replace(OPEN, host_tier=tier)).stats.pcie_bytes

    assert copied("write_through") == 4 * BLOCK_BYTES
    assert copied("write_back") == 0


def test_load_back_is_chosen_when_its_predicted_cost_is_lower() -> None:
    # Recomputing 16 tokens takes 16 us of linear layers, the copy 22 us at 1 GB/s and 14 us at 2 GB/s.
    assert tiered(8, profile=slow_prefill(), load_back="predicted").requests[2]["host_hit_tokens"] == 0
    faster = tiered(8, profile=slow_prefill(), load_back="predicted", pcie_bytes_per_s=2 * 10**9)
    assert faster.requests[2]["host_hit_tokens"] == 16
    assert tiered(8, load_back="never").requests[2]["host_hit_tokens"] == 0


def test_a_copy_that_waits_for_the_link_counts_its_wait() -> None:
    """Two prefixes asked for at once: a copy takes 14 us, recomputing 16 us, and the second copy would wait."""
    case = Case()
    case.call(17, 1, units=[1, 2, 3, 4])
    case.call(17, 1, units=[5, 6, 7, 8], at_ns=FAR_NS)
    case.call(40, 1, units=range(50, 60), at_ns=2 * FAR_NS)
    case.call(17, 1, units=[1, 2, 3, 4], at_ns=3 * FAR_NS)
    case.call(17, 1, units=[5, 6, 7, 8], at_ns=3 * FAR_NS)
    tier = HostTierConfig(
        ratio=4.0, write="write_through", load_back="predicted", min_load_tokens=1, pcie_bytes_per_s=2 * 10**9
    )
    config = replace(OPEN, host_tier=tier)
    result = run(case, blocks=10, config=config, profile=slow_prefill())
    assert [result.requests[s]["host_hit_tokens"] for s in (3, 4)] == [16, 0]
    config = replace(config, host_tier=replace(tier, load_back="always"))
    result = run(case, blocks=10, config=config, profile=slow_prefill())
    assert [result.requests[s]["host_hit_tokens"] for s in (3, 4)] == [16, 16]


def test_short_prefixes_stay_where_they_are() -> None:
    assert tiered(8, min_load_tokens=16).requests[2]["host_hit_tokens"] == 16
    assert tiered(8, min_load_tokens=17).requests[2]["host_hit_tokens"] == 0


def test_a_full_host_evicts_and_never_holds_more_than_it_has() -> None:
    # Eight blocks of host for four and eight: the first prefix leaves the host when the second comes.
    assert tiered(8, ratio=1.0).requests[2]["host_hit_tokens"] == 0
    assert tiered(8, ratio=1.5).requests[2]["host_hit_tokens"] == 16
    # A run that is larger than the whole host is not stored, and displaces nothing.
    assert tiered(8, ratio=0.5).requests[2]["host_hit_tokens"] == 16


def test_the_link_serves_copies_in_turn_each_with_its_overhead() -> None:
    link = Link(10**9, 6_000_000)
    one = link.duration_ps(1000)
    assert one == 6_000_000 + 1000 * PS_PER_S // 10**9
    assert link.transfer(1000, 0) == one
    assert link.transfer(1000, one // 2) == 2 * one  # waits for the first
    assert link.transfer(1000, 5 * one) == 6 * one  # idle in between
    assert link.duration_ps(3000, copies=3) == 3 * one
    assert link.bytes_moved == 3000


def test_what_is_still_being_copied_to_the_host_is_not_read_back_before() -> None:
    # The link takes 1 ms a token: the prefix is on its way to the host for 16 ms from when it is displaced.
    last = tiered(8, pcie_bytes_per_s=1_000_000, write="write_back").requests[2]
    copy_ns = 16_000_000 + 6_000
    assert last["host_hit_tokens"] == 16
    assert last["admitted_ns"] < FAR_NS + copy_ns
    assert last["first_token_ns"] >= FAR_NS + 2 * copy_ns  # there, and the same way back
