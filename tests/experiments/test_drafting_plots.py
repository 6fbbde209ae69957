"""Figures of drafting show what the logs hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_runs import Effect, make, tables

from experiments.draft_gain import by_batch, plain_price
from experiments.plots import drafting, render, repeats, speedup
from experiments.plots.source import ArmRuns
from experiments.plots.style import Look
from experiments.summary import summarise, write_summary
from policies.registry import load
from policies.views import HostInfo
from sim.worlds import flat_profile
from traces import workloads
from traces.errors import InputError
from traces.runlog import from_tables

ARMS = {"lru": Effect(0.4), "lifecycle": Effect(0.5, 0.5)}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    axes = {"load.concurrency": [32, 8]}
    plan, store = make(tmp_path_factory.mktemp("sweep"), ARMS, seeds=(0, 1, 2), axes=axes)
    write_summary(summarise(plan, store), store.experiment_dir(plan))
    return plan, store


def test_a_speedup_is_the_paired_ratio_of_goodput_at_each_value(swept: Any) -> None:
    plan, store = swept
    found = speedup.data(plan, store)
    assert (found.axis, found.values) == ("load.concurrency", [8, 32])
    ((_, curves),) = found.panels
    ((look, mean, low, high),) = curves
    assert look.label == "lifecycle"
    assert np.all(mean > 1.1)  # every time is halved, arrivals are not
    assert np.all((low <= mean) & (mean <= high))


def test_figures_are_drawn_and_refuse_what_has_nothing_to_show(swept: Any, tmp_path: Path) -> None:
    plan, store = swept
    out = render(store.experiment_dir(plan), "speedup", tmp_path / "a.svg")
    assert out.stat().st_size > 2000
    with pytest.raises(InputError, match="no complete run that drafts"):
        render(store.experiment_dir(plan), "drafting", tmp_path / "b.svg")


def drafted_run(seed: int) -> Any:
    found = tables(seed, Effect())
    steps = found["steps"]
    n = steps.num_rows
    decode = np.array(steps["decode_seqs"])
    columns = {
        "prefill_seqs": np.zeros(n),
        "drafted_tokens": np.where(np.arange(n) % 2, 3 * decode, 0),
        "accepted_tokens": np.where(np.arange(n) % 2, decode, 0),
    }
    for name, values in columns.items():
        i = steps.schema.get_field_index(name)
        import pyarrow as pa

        steps = steps.set_column(i, steps.schema.field(i), pa.array(values).cast(steps.schema.field(i).type))
    return from_tables({**found, "steps": steps})


def test_time_saved_is_plain_time_for_the_same_tokens_less_the_time_spent() -> None:
    run = drafted_run(1)
    table = by_batch(run, lambda seqs, context: 1_000_000 * seqs + context)
    decode, drafted, accepted, duration, context = run.columns(
        "steps", "decode_seqs", "drafted_tokens", "accepted_tokens", "duration_ns", "context_tokens"
    )
    assert table[:, 0].sum() == len(decode)
    assert table[:, 2].sum() == drafted.sum()
    assert table[:, 3].sum() == duration.sum()
    # Steps that accept a token a sequence stand for two plain ones.
    plain = (1000 * decode + context / 1000) * np.where(accepted > 0, 2, 1)
    assert table[:, 4].sum() == pytest.approx(plain.sum())
    found = drafting.data(
        [ArmRuns(Look("a", 0), (1,), (run,))], lambda seqs, _: 1000 * seqs, [[6_000_000_000]]
    )
    (curve,) = found.curves
    shown = np.isfinite(curve.batch)
    assert np.allclose(curve.drafted[shown] / curve.batch[shown], 1.5, rtol=0.1)
    ((_, _, (drafts, verifying, rest)),) = found.bars
    assert drafts == pytest.approx(0.1)
    assert drafts + verifying == pytest.approx(rest, rel=0.01)


def test_a_plain_step_is_priced_as_the_engine_prices_it() -> None:
    profile = flat_profile(1_000_000, kv_read_ps_per_token=7, per_seq_ps=11)
    price = plain_price(profile, load("bucketers", "eager"), 8, 64)  # type: ignore[arg-type]
    assert price(3, 100) == 1_000_000 + 700 + 33


def test_repeats_fall_with_the_span_and_acceptance_rises_with_redundancy() -> None:
    found = repeats.data([workloads.open("miniswe")], HostInfo(flat_profile(1), 16, 1 << 16))
    assert found.workloads == ("miniswe",)
    for shares in found.repeated.values():
        assert shares == sorted(shares, reverse=True)
    for shares in found.accepted.values():
        known = [s for s in shares if s == s]
        assert known[-1] == max(known)
    with pytest.raises(ValueError, match="no workload"):
        repeats.data([workloads.open("weka")], HostInfo(flat_profile(1), 16, 1 << 16))
