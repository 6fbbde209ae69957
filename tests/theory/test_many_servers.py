"""Many servers behind one queue (Erlang's C formula), and two queues of which the shorter is joined."""

import math

import numpy as np
import pytest
from scipy.sparse import lil_matrix
from scipy.sparse.linalg import spsolve
from stations import STEP_S, geometric, interval, queue, serve, waits_s

MEAN_STEPS = 120
MEAN_S = MEAN_STEPS * STEP_S
REPLICATIONS = 20
REQUESTS = 1_800
DISCARD = 200


def erlang_wait_s(servers: int, load: float) -> float:
    """Return the mean wait in M/M/c: C(c, a) E[S] / (c (1 - load)), with a = c load."""
    a = servers * load
    busy = a**servers / math.factorial(servers) / (1 - load)
    c = busy / (sum(a**k / math.factorial(k) for k in range(servers)) + busy)
    return c * MEAN_S / (servers * (1 - load))


def shortest_queue_wait_s(load: float, limit: int = 60) -> float:
    """Return the mean wait where the shorter of two queues is joined: its Markov chain, solved.

    States (i, j) with i, j <= limit requests at each server. Time in mean services; arrival rate 2 load.
    """
    n = limit + 1
    rate = 2 * load
    q = lil_matrix((n * n, n * n))

    def move(a: int, b: int, speed: float) -> None:
        q[b, a] += speed
        q[a, a] -= speed

    for i in range(n):
        for j in range(n):
            here = i * n + j
            if i > 0:
                move(here, here - n, 1.0)
            if j > 0:
                move(here, here - 1, 1.0)
            if i <= j and i < limit:
                move(here, here + n, rate)  # ties go to the first
            elif j < limit:
                move(here, here + 1, rate)
    q[0, :] = 1.0  # replaces one balance equation, which the others imply
    right = np.zeros(n * n)
    right[0] = 1.0
    p = spsolve(q.tocsc(), right).reshape(n, n)
    assert p[-1].sum() + p[:, -1].sum() < 1e-9  # nothing is cut off
    in_system = float((p * (np.arange(n)[:, None] + np.arange(n)[None, :])).sum())
    return (in_system / rate - 1) * MEAN_S


def mean_wait(seed: int, rate: float, *, servers: int = 1, replicas: int = 1) -> float:
    log = serve(
        queue(geometric(MEAN_STEPS, REQUESTS, seed)),
        rate_per_s=rate, seed=seed, servers=servers, replicas=replicas,
    )  # fmt: skip
    return float(waits_s(log, DISCARD).mean())


@pytest.mark.parametrize(("servers", "load"), [(2, 0.6), (4, 0.7)])
def test_waiting_in_one_queue_for_many_servers_follows_erlang(servers: int, load: float) -> None:
    rate = servers * load / MEAN_S
    got = interval([mean_wait(s, rate, servers=servers) for s in range(REPLICATIONS)])
    theory = erlang_wait_s(servers, load)
    # A newcomer joins at the next step boundary of the batch in progress: at most a step later than in M/M/c.
    assert theory - got.half <= got.mean <= theory + STEP_S + got.half, (str(got), theory)
    assert got.half < 0.3 * theory, str(got)


def test_waiting_behind_the_least_loaded_router_follows_the_shortest_queue() -> None:
    load = 0.8
    rate = 2 * load / MEAN_S
    got = interval([mean_wait(100 + s, rate, replicas=2) for s in range(REPLICATIONS)])
    theory = shortest_queue_wait_s(load)
    assert got.holds(theory), (str(got), theory)
    # Two queues cannot share as well as one, and do far better than two fed by chance.
    assert erlang_wait_s(2, load) < theory < erlang_wait_s(1, load)
    assert got.mean + got.half < 0.6 * erlang_wait_s(1, load)
