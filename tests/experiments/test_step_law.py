"""A stated step law replaces every price of a step, says so, and leaves graphs' prices."""

from __future__ import annotations

import pytest

from calibration import catalog
from calibration.step_law import with_step_law
from experiments.settings import settings
from traces.errors import InputError

PROFILE = "H200x1--Qwen3-14B--bf16--vllm"


def test_a_step_costs_base_plus_slope_a_token_whatever_its_context() -> None:
    law = with_step_law(catalog.open(PROFILE), 1000.0, 50.0)
    for tokens in (1, 16, 4096):
        assert law.step_ps(tokens, 7, 10**6) == (1000 + 50 * tokens) * 10**6
    assert law.graph_build_ps == catalog.open(PROFILE).graph_build_ps
    assert law.identity["timing"] == "stated law"
    assert any("stated step law" in n for n in law.provenance["notes"])


def test_without_a_law_the_profile_is_itself() -> None:
    profile = catalog.open(PROFILE)
    assert with_step_law(profile, None, None) is profile


def test_a_negative_law_is_refused() -> None:
    with pytest.raises(InputError, match=r"step_law\.slope_us=-1"):
        settings({"step_law": {"slope_us": -1.0}})
