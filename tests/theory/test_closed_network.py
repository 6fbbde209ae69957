"""Closed network of thinkers and one server against exact mean value analysis, and Little's law."""

import numpy as np
import pytest
from numpy.typing import NDArray
from stations import STEP_PS, STEP_S, geometric, interval, queue, serve

from traces import draws
from traces.metrics import series

MEAN_STEPS = 100
THINK_S = 0.8
REPLICATIONS = 8
WORKFLOWS = 1_500


def mean_value_analysis(customers: int, service_s: float, think_s: float) -> tuple[float, float]:
    """Return (throughput per s, mean response s): think + one exponential server (Reiser and Lavenberg)."""
    length = 0.0
    for n in range(1, customers + 1):
        response = service_s * (1 + length)
        throughput = n / (response + think_s)
        length = throughput * response
    return throughput, response


def think_ns(seed: int) -> NDArray[np.int64]:
    u = draws.uniform_array(seed, "think", np.arange(WORKFLOWS))
    return np.rint(-np.log1p(-u) * THINK_S * 1e9).astype(np.int64)


@pytest.mark.parametrize("customers", [1, 6, 15])
def test_a_closed_network_follows_mean_value_analysis(customers: int) -> None:
    throughputs, responses = [], []
    for seed in range(REPLICATIONS):
        log = serve(
            queue(geometric(MEAN_STEPS, WORKFLOWS, seed), think_ns(seed)), concurrency=customers, seed=seed
        )
        released, finished = log.columns("requests", "released_ns", "finished_ns")
        # All think at the start and the end drains: both are cut off by the order of finishing.
        order = np.argsort(finished)[100:-customers]
        responses.append(float((finished[order] - released[order]).mean()) / 1e9)
        throughputs.append((len(order) - 1) / (float(finished[order[-1]] - finished[order[0]]) / 1e9))
    throughput, response = mean_value_analysis(customers, MEAN_STEPS * STEP_S, THINK_S)
    got = interval(responses)
    assert got.holds(response), (str(got), response)
    assert got.half < 0.12 * response, str(got)
    got = interval(throughputs)
    assert got.holds(throughput), (str(got), throughput)
    assert got.half < 0.06 * throughput, str(got)


def test_a_closed_loop_keeps_its_number_of_workflows() -> None:
    """Every later workflow starts at the instant that another one ends."""
    log = serve(queue(geometric(20, 300, 0), think_ns(0)[:300]), concurrency=7)
    started, finished = log.columns("workflows", "started_ns", "finished_ns")
    assert int((started == 0).sum()) == 7
    assert np.array_equal(np.sort(started)[7:], np.sort(finished)[: 300 - 7])


@pytest.mark.parametrize(("servers", "replicas", "rate"), [(1, 1, 8.0), (4, 1, 30.0), (1, 3, 25.0)])
def test_littles_law_holds_on_every_run(servers: int, replicas: int, rate: float) -> None:
    """The number in the system, over the steps, against the time in the system, over the requests.

    Steps count who waits when they start, so each request is missed for at most the step it arrived in.
    """
    steps = geometric(MEAN_STEPS, 1_000, 4)
    log = serve(queue(steps), rate_per_s=rate, servers=servers, replicas=replicas, seed=4, keep_steps=True)
    released, finished = log.columns("requests", "released_ns", "finished_ns")
    sojourn_s = float((finished - released).sum()) / 1e9
    level = series(log, "running", 50), series(log, "waiting", 50)
    width_s = float(np.diff(level[0].edges_s)[0])
    number_s = sum(float(s.value.sum()) for s in level) * width_s
    assert sojourn_s - len(steps) * STEP_PS / 1e12 <= number_s <= sojourn_s + 1e-6
    assert sojourn_s > 20 * len(steps) * STEP_PS / 1e12  # the bound above is not loose
