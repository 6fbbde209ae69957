"""The timeline shows a run's hit rate to its end, and phases where the log has their events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fake_runs import Effect, make

from experiments.cards.pbkv.course import phase_rates
from experiments.plots import timeline
from experiments.plots.source import load_arms


def test_bins_add_up_to_the_hit_rate_of_the_run_and_phases_follow_its_events(tmp_path: Path):
    plan, store = make(tmp_path, {"lru": Effect(0.4), "sieve": Effect(0.6)}, seeds=(0, 1))
    arms = load_arms(plan, store)
    data = timeline.data(arms)
    assert len(data.curves) == 2
    assert np.nanmean(data.curves[1][1]) > np.nanmean(data.curves[0][1])
    run = arms[0].runs[0]
    started, finished = run.columns("workflows", "started_ns", "finished_ns")
    phases = timeline.phases_s(run)
    assert phases["first workflow ends"] == pytest.approx(finished.min() / 1e9)
    assert phases["last workflow starts"] == pytest.approx(started.max() / 1e9)
    hit, prompt = run.columns("requests", "gpu_hit_tokens", "prompt_tokens")
    assert timeline.between(run, 0, 1e6) == pytest.approx(hit.sum() / prompt.sum())
    assert np.isnan(timeline.between(run, 5, 5))
    rates = phase_rates(run)
    assert all(np.isnan(r) or 0 <= r <= 100 for r in rates.values())
    assert any(r > 0 for r in rates.values())


def test_every_run_is_seen_to_its_own_end(tmp_path: Path):
    plan, store = make(tmp_path, {"lru": Effect(0.4), "slow": Effect(0.4, 3.0)}, seeds=(0,))
    arms = load_arms(plan, store)
    data = timeline.data(arms)
    ends = [arm.runs[0].column("requests", "finished_ns").max() / 1e9 for arm in arms]
    assert data.mid_s[-1] + data.mid_s[0] >= max(ends) * 0.999
