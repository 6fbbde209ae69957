"""Laws of exact repeats."""

from functools import cache

import numpy as np
import pytest

from traces import workloads
from traces.errors import InputError
from traces.replay import replay
from traces.resample import resample
from traces.reuse import prefix_reuse
from traces.schema import Workload


@cache
def base() -> Workload:
    return workloads.open("dynbranch_hci")


@pytest.mark.parametrize("share", [0.0, 0.22, 0.77, 1.0])
def test_a_replay_is_sound_and_has_the_share_asked_for(share: float) -> None:
    w = replay(base(), 50, share, seed=3)
    assert w.errors() == []
    repeats = sum("@" in n for n in w.workflow_names)
    assert repeats == min(round(50 * share), 49)
    assert "@" not in w.workflow_names[0]


def test_a_repeat_equals_the_earlier_workflow_it_names_in_every_column() -> None:
    w = replay(base(), 60, 0.5, seed=1)
    b = w.branches
    assert b is not None
    for place, name in enumerate(w.workflow_names):
        if "@" not in name:
            continue
        first = w.workflow_names.index(name.split("@")[0])
        assert first < place
        one, two = w.stage_workflow == first, w.stage_workflow == place
        for column in (
            "prompt_tokens",
            "output_tokens",
            "stage_duration_ns",
            "prompt_segment",
            "sequence_segment",
        ):
            assert getattr(w, column)[one].tolist() == getattr(w, column)[two].tolist()
        for column in ("stage_content", "stage_fingerprint", "stage_flags"):
            assert getattr(b, column)[one].tolist() == getattr(b, column)[two].tolist()
        options = [
            b.option_arguments[np.isin(b.branch_stage[b.option_branch], np.flatnonzero(x))]
            for x in (one, two)
        ]
        assert options[0].tolist() == options[1].tolist()


def test_repeats_are_all_that_a_cache_could_gain() -> None:
    none, half = (prefix_reuse(replay(base(), 60, s, seed=1)) for s in (0.0, 0.5))
    plain = prefix_reuse(resample(base(), 60, seed=1))
    assert none.token_rate(none.hit_tokens) == plain.token_rate(plain.hit_tokens)
    assert half.token_rate(half.hit_tokens) > none.token_rate(none.hit_tokens)


def test_a_larger_share_keeps_the_repeats_of_a_smaller_one() -> None:
    few, many = (
        {i for i, n in enumerate(replay(base(), 80, s, 5).workflow_names) if "@" in n} for s in (0.2, 0.6)
    )
    assert few < many


def test_bad_shares_are_refused() -> None:
    for share in (-0.1, 1.1):
        with pytest.raises(InputError, match="share="):
            replay(base(), 10, share, 0)
