"""Workflows that did not finish are counted, and so is what they never asked for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from fake_log import MS, table, two_requests

from sim.worlds import random_world
from traces.metrics import finished_workflows, run_metrics, warnings
from traces.runlog import RunLog, from_tables
from traces.windows import Window


def _cut_short() -> dict[str, pa.Table]:
    """Workflow 1 ends with its rejected request; of its 7 requests 2 were released and reuse served 1."""
    tables = two_requests()
    tables["workflows"] = table(
        "workflows", workflow=[1, 0], arrival_ns=[4 * MS, 0], started_ns=[4 * MS, 0],
        finished_ns=[-1, 25 * MS], stages=[2, 1], requests=[7, 1], rejected=[1, 0],
        waited_ns=[0, 0],
    )  # fmt: skip
    tables["decisions"] = table(
        "decisions", time_ns=[5 * MS, 6 * MS], family=["reuse", "reuse"], action=["served", "stored"],
        workflow=[1, 1], stage=[3, 4],
    )  # fmt: skip
    return tables


def test_a_failed_workflow_is_counted_with_what_it_never_issued() -> None:
    log = from_tables(_cut_short())
    m = run_metrics(log)
    assert (m["workflows"], m["workflows_completed"], m["workflows_unfinished"]) == (2, 1, 1)
    assert m["requests_never_issued"] == 7 - 2 - 1
    assert finished_workflows(log).tolist() == [0]
    assert "1 of 2 workflows did not finish; 4 of their requests were never issued" in warnings(log)


def test_a_workflow_counts_in_the_window_it_arrived_in() -> None:
    early = run_metrics(from_tables(_cut_short()), Window("part", 0, 3 * MS))
    late = run_metrics(from_tables(_cut_short()), Window("part", 3 * MS, 60 * MS))
    assert (early["workflows_unfinished"], early["requests_never_issued"]) == (0, 0)
    assert (late["workflows_unfinished"], late["requests_never_issued"]) == (1, 4)


def test_a_run_that_finished_is_not_warned_about() -> None:
    log = from_tables(two_requests())
    assert run_metrics(log)["requests_never_issued"] == 0
    assert not any("did not finish" in line for line in warnings(log))


@pytest.mark.parametrize("seed", range(12))
def test_requests_of_workflows_are_released_served_by_reuse_or_never_issued(seed: int) -> None:
    log: RunLog = from_tables(random_world(seed).run()[1])
    served = log.select("decisions", "family", "reuse") & log.select("decisions", "action", "served")
    counted = log.rows("requests") + int(served.sum()) + run_metrics(log)["requests_never_issued"]
    assert counted == int(log.column("workflows", "requests").sum())
    assert np.all(np.diff(finished_workflows(log)) > 0)
