import numpy as np
import pytest
from fake_log import table

from traces import draws
from traces.runlog import RunLog, from_tables
from traces.tables import REQUEST_STATUS
from traces.windows import BATCH, MIN_BATCHES, Window, full_window, mser5, steady_window, window_of

S = 1_000_000_000


def noise(n: int, seed: int) -> np.ndarray:
    return draws.uniform_array(seed, "noise", np.arange(n)) - 0.5


def brute_force(values: np.ndarray) -> int:
    means = np.array([values[i : i + 5].mean() for i in range(0, len(values) // 5 * 5, 5)])
    kept = [means[d:] for d in range(len(means) // 2 + 1)]
    return int(np.argmin([np.sum((k - k.mean()) ** 2) / len(k) ** 2 for k in kept])) * 5


@pytest.mark.parametrize("seed", range(10))
def test_mser_minimises_the_marginal_standard_error(seed: int) -> None:
    n = 60 + draws.bits(seed, "n") % 200
    values = noise(n, seed) + 3 * np.exp(-np.arange(n) / 20)
    assert mser5(values).index == brute_force(values)


def test_mser_cuts_a_warm_up_and_keeps_what_is_steady() -> None:
    for seed in range(10):
        values = noise(500, seed)
        assert mser5(values).index <= 150
        values[:100] += 8.0
        cut = mser5(values)
        assert cut.reliable
        assert 100 <= cut.index <= 250


def test_mser_does_not_depend_on_the_level_of_the_series() -> None:
    values = noise(300, 3)
    values[:50] += 4
    assert mser5(values).index == mser5(values + 1e6).index == mser5(values * 1e3).index


def test_mser_admits_that_a_trend_has_no_steady_state() -> None:
    assert not mser5(np.arange(500.0)).reliable


def test_mser_keeps_a_constant_whole() -> None:
    cut = mser5(np.full(200, 0.1))
    assert (cut.index, cut.reliable) == (0, True)


def test_mser_needs_ten_batches() -> None:
    assert not mser5(np.zeros(BATCH * MIN_BATCHES - 1)).reliable
    assert mser5(np.zeros(BATCH * MIN_BATCHES)).reliable


def log_with_warm_up(n: int = 400, warm: int = 80, last_start: int | None = None) -> RunLog:
    """One request a second; cold prompts for `warm` s, then 90 % hits; latency 1 s with noise."""
    released = np.arange(n) * S
    finished = released + S + np.round(noise(n, 1) * S / 10).astype(np.int64)
    started = np.minimum(released, (n if last_start is None else last_start) * S)
    return from_tables(
        {
            "requests": table(
                "requests",
                prompt_tokens=[1000] * n,
                output_tokens=[1] * n,
                gpu_hit_tokens=np.where(np.arange(n) < warm, 0, 900),
                released_ns=released,
                admitted_ns=released,
                first_token_ns=finished,
                finished_ns=finished,
            ),
            "workflows": table("workflows", arrival_ns=started, started_ns=started, finished_ns=finished),
        }
    )


def test_the_steady_window_starts_after_the_cache_warmed_up() -> None:
    window = steady_window(log_with_warm_up())
    assert window.reliable
    assert window.start_ns == 80 * S
    assert window.end_ns == 399 * S


def test_the_steady_window_ends_when_the_last_workflow_starts() -> None:
    log = log_with_warm_up(last_start=300)
    window = steady_window(log)
    assert window.end_ns == 300 * S
    released = log.column("requests", "released_ns")
    assert int(window.holds(released).sum()) == 300 - 80


def test_without_arrivals_over_time_there_is_no_steady_window() -> None:
    window = steady_window(log_with_warm_up(last_start=0))
    assert not window.reliable
    assert window.seconds == 0
    assert not window.holds(np.arange(5) * S).any()


def test_unfinished_requests_do_not_decide_the_window() -> None:
    log = log_with_warm_up()
    tables = {t: log.table(t) for t in ("requests", "workflows")}
    requests = tables["requests"]
    status = np.zeros(requests.num_rows, dtype=np.int8)
    status[200:260] = REQUEST_STATUS.index("rejected")
    finished = log.column("requests", "finished_ns").copy()
    finished[200:260] = 10**15
    for name, values in (("status", status), ("finished_ns", finished)):
        i = requests.schema.get_field_index(name)
        requests = requests.set_column(i, requests.schema.field(i), [values])
    assert steady_window(from_tables({**tables, "requests": requests})).start_ns == 80 * S


def test_the_full_window_spans_arrival_to_last_event() -> None:
    window = full_window(log_with_warm_up())
    assert window.start_ns == 0
    assert window.end_ns == int(log_with_warm_up().column("requests", "finished_ns").max())
    assert full_window(from_tables({})).seconds == 0
    # "full" holds all that happened, its last instant included.
    assert window.holds(np.array([-1, 0, window.end_ns])).tolist() == [False, True, True]


def test_a_window_given_is_taken_as_it_is() -> None:
    window = Window("mine", 3, 9)
    assert window_of(from_tables({}), window) is window
    assert window.holds(np.array([2, 3, 8, 9])).tolist() == [False, True, True, False]
