"""Laws of the studies: the form carries over, intervals cover, profiles compare."""

from __future__ import annotations

import pytest

from calibration import constants as data
from calibration import fit_tables, study_forms
from calibration.__main__ import main
from calibration.study_recovery import default_target, recovery


def test_committed_kernel_fit_is_what_the_rows_give() -> None:
    key = "a100_sxm:bf16"
    committed, fresh = data.read("kernel_fit")["keys"][key], fit_tables.fit_key(key)
    for tp, constants in committed["constants"].items():
        for name in ("weights", "flops", "kv", "attention", "power", "layer_us"):
            assert fresh["constants"][tp][name] == pytest.approx(constants[name], rel=5e-3, abs=1e-3)
    for model, by_tp in committed["errors"].items():
        for tp, kinds in by_tp.items():
            for kind, error in kinds.items():
                got = fresh["errors"][model][tp][kind]["mape_percent"]
                assert got == pytest.approx(error["mape_percent"], abs=0.2)


def test_smooth_maximum_carries_over_better_than_a_line() -> None:
    found = study_forms.study()
    for split, error in found["linear (4)"].items():
        best = found["smooth max, nine knots, ridge"][split]
        assert best["mape_percent"] < 0.7 * error["mape_percent"], split
    smooth = found["smooth max, nine knots, ridge"]
    assert smooth["23 points"]["mape_percent"] < 5
    assert smooth["extrapolation"]["mape_percent"] < 7
    assert smooth["H100 to H200"]["mape_percent"] < 5
    assert (
        found["smooth max (8)"]["H100 to H200"]["mape_percent"]
        < found["hard max (7)"]["H100 to H200"]["mape_percent"]
    )
    assert "not run" in study_forms.text(found)


def test_no_row_is_both_fitted_and_judged() -> None:
    for name, (train, test) in study_forms.splits().items():
        seen = {tuple(r) for r in zip(*_identity(train), strict=True)}
        asked = {tuple(r) for r in zip(*_identity(test), strict=True)}
        assert seen
        assert asked
        assert not seen & asked, name


def _identity(rows: study_forms.Rows) -> list[list[float]]:
    t = rows.terms
    return [t.seconds.tolist(), t.reads.tolist(), t.kv.tolist(), t.attention.tolist(), t.multiplies.tolist()]


def test_intervals_cover_simulated_truth() -> None:
    found = recovery(default_target(), repetitions=30)
    # 30 repetitions of 6 probes that share a fit: wider than the 85 to 95 that 200 repetitions are held to.
    assert 82 <= found["posterior_coverage_mean_percent"] <= 97
    assert 85 <= found["conformal_coverage_percent"] <= 98
    assert max(found["price_error_percent"].values()) < 1.5


def test_compare_prints_both_profiles_and_the_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "H200x1--Qwen3-8B--bf16--vllm", "H100x1--Qwen3-8B--bf16--vllm"]) == 0
    out = capsys.readouterr().out
    assert "decode 64 x 2,048" in out
    assert "ns a KV token" in out
    assert main(["compare", "H200x1--Qwen3-8B--bf16--vllm", "nothing"]) == 2
