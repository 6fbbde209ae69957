"""The closed loop against cases worked by hand, and the committed fits against their own rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from calibration import check, overhead
from calibration import constants as data
from calibration.closed_loop import closed_loop_tpot_ps
from policies.costs import Profile


def flat(step_ps: int, kv_ps: int = 0, per_seq_ps: int = 0) -> Profile:
    return replace(
        overhead.kernel_profile("H200", "Qwen3-8B", "bf16", 1),
        linear_tokens=(1,),
        linear_ps=(step_ps,),
        kv_read_ps_per_token=kv_ps,
        per_seq_ps=0,
        attention_as_per_pair=0,
        overhead_per_seq_ps=per_seq_ps,
    )


def test_constant_steps_give_one_step_a_token() -> None:
    assert closed_loop_tpot_ps(flat(1000), 50, 20, 7) == 1000


def test_overhead_adds_its_constant_and_its_share_of_the_batch() -> None:
    # Every step serves all seven clients, decoding or in prefill.
    assert closed_loop_tpot_ps(flat(1000, per_seq_ps=3), 50, 20, 7) == 1000 + 3 * 7


def test_context_read_is_the_mean_over_a_request() -> None:
    # One client: its steps read prompt + 1 .. prompt + osl - 1 tokens.
    prompt, osl = 100, 11
    mean = prompt + osl / 2
    assert closed_loop_tpot_ps(flat(0, kv_ps=10), prompt, osl, 1) == pytest.approx(10 * mean)


def test_prompts_of_others_stretch_the_steps() -> None:
    profile = replace(flat(0), linear_tokens=(1, 2), linear_ps=(1, 2))
    # A step costs its tokens. While one request decodes 10 tokens, the other's prompt of 30 passes once.
    assert closed_loop_tpot_ps(profile, 30, 11, 2) == pytest.approx((10 * 2 - 1 + 30) / 10, rel=0.06)


def test_committed_overhead_is_what_the_fit_gives() -> None:
    committed = data.read("engine_overhead")
    fresh = json.loads(json.dumps(overhead.report()))
    assert fresh["fixed_us"] == pytest.approx(committed["fixed_us"], abs=0.2)
    assert fresh["seq_us"] == pytest.approx(committed["seq_us"], abs=0.2)
    assert fresh["tpot_error"].keys() == committed["tpot_error"].keys()
    for label, error in committed["tpot_error"].items():
        assert fresh["tpot_error"][label]["mape_percent"] == pytest.approx(error["mape_percent"], abs=0.2)


def test_held_out_prompt_lengths_are_predicted_within_five_percent() -> None:
    error = data.read("engine_overhead")["tpot_error"]["H100x2--Qwen3-32B--bf16 isl 4096"]
    assert not error["fitted"]
    assert error["mape_percent"] < 5


def test_check_measures_the_distance_to_given_rows(tmp_path: Path) -> None:
    profile = overhead.kernel_profile("H200", "Qwen3-8B", "bf16", 1)
    rows = []
    for kind, b, n, aux in (("decode", 8, 1024, 0), ("prefill", 1, 512, 1024), ("mixed", 8, 128, 1024)):
        exact = check.step_ms(profile, kind, b, n, aux)
        rows += [("h200_sxm", "Qwen3-8B", "bf16", 1, kind, b, n, aux, exact / f) for f in (1.1, 0.9)]
    rows.append(("h200_sxm", "Qwen3-8B", "fp8_block", 1, "decode", 8, 1024, 0, 1.0))
    path = tmp_path / "rows.csv"
    pd.DataFrame(rows, columns=list(check.COLUMNS)).to_csv(path, index=False)
    errors = check.report(path)["errors"]
    assert list(errors) == ["h200_sxm:bf16"]
    for kind in ("decode", "prefill", "mixed"):
        assert errors["h200_sxm:bf16"]["1"][kind] == {
            "mape_percent": 10.0, "p95_percent": 10.0, "bias_percent": 0.0, "rows": 2,
        }  # fmt: skip
