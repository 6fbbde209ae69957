"""M/M/1, M/D/1 and M/G/1 against the Pollaczek-Khinchine formula W = rate E[S^2] / (2 (1 - load))."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from stations import STEP_S, geometric, interval, queue, serve, waits_s

from traces import draws

REPLICATIONS = 20
REQUESTS = 2_000
DISCARD = 200

Service = Callable[[int], NDArray[np.int64]]


def two_sizes(seed: int) -> NDArray[np.int64]:
    """Nine in ten requests take 40 steps, the others 440: mean 80, squared coefficient of variation 2.25."""
    rare = draws.uniform_array(seed, "service", np.arange(REQUESTS)) < 0.1
    return np.where(rare, 440, 40)


# Mean and second moment of the number of steps, exactly.
GEOMETRIC = (80.0, 80.0**2 * (2 - 1 / 80))
SERVICES: dict[str, tuple[Service, tuple[float, float]]] = {
    "M/M/1": (lambda seed: geometric(80, REQUESTS, seed), GEOMETRIC),
    "M/D/1": (lambda _: np.full(REQUESTS, 80, dtype=np.int64), (80.0, 6400.0)),
    "M/G/1": (two_sizes, (80.0, 0.9 * 40**2 + 0.1 * 440**2)),
}


@pytest.mark.parametrize("load", [0.3, 0.6])
@pytest.mark.parametrize("name", SERVICES)
def test_waiting_follows_pollaczek_khinchine(name: str, load: float) -> None:
    service, (mean, second) = SERVICES[name]
    rate = load / (mean * STEP_S)
    theory = rate * second * STEP_S**2 / (2 * (1 - load))
    got = interval(
        [
            float(waits_s(serve(queue(service(seed)), rate_per_s=rate, seed=seed), DISCARD).mean())
            for seed in range(REPLICATIONS)
        ]
    )
    assert got.holds(theory), (str(got), theory)
    # The interval must tell the three queues apart: their waits differ by a factor of 1.6 and more.
    assert got.half < 0.25 * theory, str(got)


def test_waiting_in_mm1_is_exponential_beyond_zero() -> None:
    """P(W > t) = load exp(-(1 - load) t / E[S]): the distribution, not only the mean."""
    load, mean = 0.6, 80
    rate = load / (mean * STEP_S)
    t = np.array([0.0, 1.0, 3.0]) * mean * STEP_S
    shares = []
    for seed in range(REPLICATIONS):
        wait = waits_s(serve(queue(geometric(mean, REQUESTS, seed)), rate_per_s=rate, seed=seed), DISCARD)
        shares.append([(wait > x).mean() for x in t])
    for i, x in enumerate(t):
        got = interval([row[i] for row in shares])
        theory = load * float(np.exp(-(1 - load) * x / (mean * STEP_S)))
        assert got.holds(theory), (x, str(got), theory)


def test_service_takes_its_steps_and_nothing_else() -> None:
    steps = geometric(80, 500, 1)
    log = serve(queue(steps), rate_per_s=5.0, seed=1)
    stage, admitted, finished = log.columns("requests", "stage", "admitted_ns", "finished_ns")
    assert np.array_equal(finished - admitted, steps[stage] * round(STEP_S * 1e9))


def test_one_server_serves_in_order_and_never_idles_with_work() -> None:
    """Lindley's recursion, exactly: a request starts at its release or its predecessor's finish."""
    log = serve(queue(geometric(80, 1000, 2)), rate_per_s=9.0, seed=2)
    columns = log.columns("requests", "released_ns", "admitted_ns", "finished_ns")
    order = np.argsort(columns[0], kind="stable")
    released, admitted, finished = (c[order] for c in columns)
    assert np.array_equal(admitted[1:], np.maximum(released[1:], finished[:-1]))
