import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from fake_log import MS, table, two_requests, two_requests_log

from traces import draws
from traces.errors import InputError
from traces.metrics import (
    DEFINITIONS,
    SERIES,
    UNITS,
    Slo,
    e2e_ms,
    generated_tokens,
    itl_ms,
    queue_ms,
    run_metrics,
    series,
    tpot_ms,
    ttft_ms,
    warnings,
)
from traces.quantiles import Sample, sample
from traces.runlog import RunLog, from_tables
from traces.tables import REQUEST_STATUS
from traces.windows import Window

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_latencies_follow_their_definitions() -> None:
    log = two_requests_log()
    assert ttft_ms(log).tolist() == [10.0, 15.0]
    assert tpot_ms(log).tolist() == [5.0, 20.0]
    assert e2e_ms(log).tolist() == [25.0, 55.0]
    assert queue_ms(log).tolist() == [0.0, 5.0]


def test_itl_counts_every_gap_once_and_keeps_gaps_over_waiting() -> None:
    gaps = itl_ms(two_requests_log())
    assert np.repeat(gaps.value, gaps.count).tolist() == [5.0, 5.0, 5.0, 5.0, 35.0]
    # As many gaps as tokens that have a predecessor.
    assert len(gaps) == (4 - 1) + (3 - 1)


def test_itl_does_not_join_steps_of_different_replicas() -> None:
    ends = [10, 11, 20, 31]
    steps = table(
        "steps",
        replica=[0, 1, 0, 1],
        start_ns=[0, 0, 10 * MS, 11 * MS],
        duration_ns=[e * MS - s for e, s in zip(ends, [0, 0, 10 * MS, 11 * MS], strict=True)],
        decode_seqs=[1, 2, 1, 2],
        fill_seqs=[0] * 4,
        continuing_seqs=[0, 0, 1, 2],
    )
    gaps = itl_ms(from_tables({"steps": steps}))
    assert sorted(np.repeat(gaps.value, gaps.count).tolist()) == [10.0, 20.0, 20.0]


def test_a_rate_counts_hits_of_admitted_requests_and_host_hits_are_misses() -> None:
    m = run_metrics(two_requests_log())
    assert m["gpu_hit_rate"] == 50 / 400
    assert m["host_hit_rate"] == 20 / 400
    assert m["compute_saved"] == 70 / 400
    assert m["recomputed_tokens"] == 210
    assert m["preemptions"] == 1


def test_every_request_is_counted_once_by_its_end() -> None:
    m = run_metrics(two_requests_log())
    assert (m["completed"], m["rejected"], m["aborted"], m["incomplete"]) == (2, 1, 0, 0)
    assert m["requests"] == m["completed"] + m["rejected"] + m["aborted"] + m["incomplete"]
    assert (m["workflows"], m["workflows_completed"]) == (2, 2)


def test_rates_are_per_second_of_the_window() -> None:
    m = run_metrics(two_requests_log())
    assert m["window_s"] == pytest.approx(0.060)
    assert m["generated_tokens_per_s"] == pytest.approx(7 / 0.060)
    assert m["requests_per_s"] == pytest.approx(2 / 0.060)
    assert m["utilisation"] == pytest.approx(35 / 60)
    assert m["mean_batch"] == pytest.approx((10 * 1 + 5 * 1 + 5 * 2 + 5 * 2 + 10 * 1) / 35)
    assert m["kv_blocks_active_max"] == 26
    assert m["kv_active_share"] == pytest.approx((10 * 7 + 5 * 7 + 10 * 26 + 10 * 20) / 35 / 50)
    assert m["kv_resident_share"] > m["kv_active_share"]


def test_tokens_of_windows_add_up_to_tokens_of_the_run() -> None:
    log = two_requests_log()
    cuts = [0, 12 * MS, 20 * MS, 26 * MS, 61 * MS]
    parts = [generated_tokens(log, Window("part", a, b)) for a, b in pairwise(cuts)]
    assert parts == [1, 1, 4, 1]
    assert sum(parts) == generated_tokens(log)


@pytest.mark.parametrize(
    ("slo", "met"),
    [
        (Slo(), 2),
        (Slo(ttft_ms=15, tpot_ms=20), 2),
        (Slo(ttft_ms=14.9, tpot_ms=20), 1),
        (Slo(ttft_ms=15, tpot_ms=19.9), 1),
        (Slo(ttft_ms=9, tpot_ms=1), 0),
    ],
)
def test_goodput_needs_both_limits(slo: Slo, met: int) -> None:
    m = run_metrics(two_requests_log(), slo=slo)
    assert m["slo_goodput"] == pytest.approx(met / 0.060)
    assert m["slo_attainment"] == met / 3  # the rejected one counts against it


def test_goodput_judges_a_request_without_tokens_by_its_latency() -> None:
    requests = table(
        "requests",
        output_tokens=[0, 0, 1],
        released_ns=[0, 0, 0],
        admitted_ns=[0, 0, 0],
        first_token_ns=[-1, -1, 8 * MS],
        finished_ns=[8 * MS, 30 * MS, 8 * MS],
    )
    m = run_metrics(from_tables({"requests": requests}), slo=Slo(ttft_ms=10, tpot_ms=1))
    assert m["slo_attainment"] == pytest.approx(2 / 3)


def test_a_limit_must_be_positive() -> None:
    with pytest.raises(InputError, match=r"slo\.ttft_ms=0: expected more than 0"):
        Slo(ttft_ms=0)


def test_an_empty_log_has_counts_of_zero_and_nothing_else() -> None:
    for window in ("full", "steady"):
        m = run_metrics(from_tables({}), window)
        assert m["requests"] == m["steps"] == 0
        assert math.isnan(m["gpu_hit_rate"])
        assert math.isnan(m["ttft_ms_p99"])
        assert math.isnan(m["generated_tokens_per_s"])


def test_weighted_percentiles_equal_those_of_the_sample_written_out() -> None:
    for case in range(50):
        n = 1 + draws.bits(1, "n", case) % 40
        value = np.round(draws.uniform_array(1, "v", case, np.arange(n)) * 10, 1)
        count = (draws.bits_array(1, "c", case, np.arange(n)) % np.uint64(4)).astype(np.int64)
        written = np.repeat(value, count)
        percents = (0.1, 25, 50, 90, 99, 100)
        got = Sample(value, count).percentiles(*percents)
        if len(written) == 0:
            assert all(math.isnan(g) for g in got)
            continue
        assert got == Sample(written).percentiles(*percents)
        assert got == np.percentile(written, percents, method="inverted_cdf").tolist()
        assert Sample(value, count).mean() == pytest.approx(written.mean())


def test_a_percentile_is_an_observed_value() -> None:
    assert sample(range(1, 201)).percentiles(99, 50, 100) == [198, 100, 200]
    assert sample([7]).percentiles(1, 99) == [7, 7]


def test_every_metric_has_a_definition_and_a_unit() -> None:
    m = run_metrics(two_requests_log())
    assert list(m) == list(DEFINITIONS)
    assert set(UNITS) == set(DEFINITIONS)
    assert all(isinstance(v, float) for v in m.values())
    for name in m:
        ending = re.search(r"_(ms|s)(_mean|_p\d\d)?$", name)
        if ending and not name.endswith("_per_s"):
            assert UNITS[name] == ending.group(1), name


def test_the_manual_holds_every_metric() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name in DEFINITIONS:
        base = re.sub(r"_(mean|p50|p90|p99)$", "", name)
        assert f"`{name}`" in text or f"`{base}`" in text, name
    for name in SERIES:
        assert f"`{name}`" in text, name


@pytest.mark.parametrize("bins", [1, 6, 12])
def test_levels_over_time_integrate_to_the_run(bins: int) -> None:
    log = two_requests_log()
    width_ms = 60 / bins
    for name, total in (("running", 45), ("waiting", 5), ("utilisation", 35), ("kv_blocks_active", 565)):
        assert float(np.sum(series(log, name, bins).value) * width_ms) == pytest.approx(total), name
    assert np.nansum(series(log, "generated_tokens_per_s", bins).value) * width_ms / 1e3 == pytest.approx(7)


def test_cached_blocks_stay_between_steps() -> None:
    cached = series(two_requests_log(), "kv_blocks_cached", 6).value
    assert cached.tolist() == pytest.approx([0, 0.5, 1, 1, 1, 8])


def test_hit_rate_over_time_is_by_admission() -> None:
    hits = series(two_requests_log(), "gpu_hit_rate", 6)
    assert hits.value[:2].tolist() == [40 / 100, 10 / 300]
    assert np.isnan(hits.value[2:]).all()
    assert hits.edges_s.tolist() == pytest.approx([0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06])


def test_every_series_has_one_value_a_bin() -> None:
    for log in (two_requests_log(), from_tables(two_requests()), from_tables({})):
        for name in SERIES:
            s = series(log, name, 7)
            assert s.value.shape == (7,)
            assert s.edges_s.shape == (8,)


def test_an_unknown_series_or_window_answers_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'gpu_hit_rate'"):
        series(two_requests_log(), "gpu_hitrate")
    with pytest.raises(InputError, match="did you mean 'steady'"):
        run_metrics(two_requests_log(), "stedy")
    with pytest.raises(InputError, match="bins=0"):
        series(two_requests_log(), "running", 0)


def lindley(rho: float, n: int, seed: int) -> RunLog:
    """A single-server queue with exponential times, mean service 1 s, open loop: one request a workflow."""
    gap = -np.log1p(-draws.uniform_array(seed, "gap", np.arange(n))) / rho
    service = -np.log1p(-draws.uniform_array(seed, "service", np.arange(n)))
    arrival = np.cumsum(gap)
    start = np.empty(n)
    free = 0.0
    for i in range(n):
        start[i] = max(arrival[i], free)
        free = start[i] + service[i]
    a, s, f = (np.round(x * 1e9).astype(np.int64) for x in (arrival, start, start + service))
    times = {"released_ns": a, "admitted_ns": s, "first_token_ns": f, "finished_ns": f}
    return from_tables(
        {
            "requests": table(
                "requests", workflow=np.arange(n), prompt_tokens=[1] * n, output_tokens=[1] * n, **times
            ),
            "steps": table("steps", start_ns=s, duration_ns=f - s, prefill_seqs=[1] * n),
            "workflows": table("workflows", workflow=np.arange(n), arrival_ns=a, started_ns=a, finished_ns=f),
        }
    )


def test_an_overloaded_queue_is_called_saturated() -> None:
    for seed in range(5):
        lines = warnings(lindley(1.25, 2000, seed))
        assert any("the queue grew" in line for line in lines), (seed, lines)
        assert any("busy" in line for line in lines), (seed, lines)


def test_a_stable_queue_is_not_called_saturated() -> None:
    for seed in range(20):
        for rho in (0.3, 0.7, 0.9):
            assert not any("saturated" in line for line in warnings(lindley(rho, 2000, seed))), (seed, rho)


def test_an_engine_that_batches_is_not_saturated_because_it_is_always_busy() -> None:
    """Steps without a gap, and requests that are admitted within one of their release."""
    n = 1000
    start = np.arange(n) * 10**6
    times = {
        "released_ns": start + 400_000, "admitted_ns": start + 10**6, "first_token_ns": start + 2 * 10**6,
        "finished_ns": start + 9 * 10**6,
    }  # fmt: skip
    log = from_tables(
        {
            "requests": table(
                "requests", workflow=np.arange(n), prompt_tokens=[1] * n, output_tokens=[8] * n, **times
            ),
            "steps": table("steps", start_ns=start, duration_ns=[10**6] * n, decode_seqs=[8] * n),
            "workflows": table(
                "workflows", workflow=np.arange(n), arrival_ns=start + 400_000, started_ns=start + 400_000,
                finished_ns=start + 9 * 10**6,
            ),
        }
    )  # fmt: skip
    assert not any("saturated" in line for line in warnings(log))


def test_requests_that_did_not_finish_are_warned_about() -> None:
    tables = two_requests()
    requests = tables["requests"]
    i = requests.schema.get_field_index("status")
    status = requests.column("status").to_pylist()
    status[1] = REQUEST_STATUS.index("incomplete")
    tables["requests"] = requests.set_column(i, requests.schema.field(i), [np.array(status, np.int8)])
    lines = warnings(from_tables(tables))
    assert "1 of 3 requests were incomplete when the run ended" in lines
    assert "1 of 3 requests were rejected" in lines
