"""Rows of the kernel benchmark: resumable, refused where they do not belong, and recovered by the fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from calibration.gpus import gpu
from calibration.kernel_profile import fit, floor_us, profile
from calibration.models import model
from kernels.__main__ import main
from kernels.bench.machine import MadeUp
from kernels.bench.measure import measure
from kernels.bench.points import points, strategies
from kernels.bench.rows import RowFile, read_rows
from policies.costs import parse_profile
from policies.laws import toy_host
from traces.errors import InputError

HOST = replace(toy_host(), max_num_seqs=16)
ABOUT = {"synthetic": True, "device": "none", "model": "Qwen2.5-3B", "layers": 36, "batch": 16, "draft": 8}


def rows(path: Path, *, budget: int = 10**6) -> bool:
    left = [budget]

    def tick() -> float:
        left[0] -= 1
        return left[0]

    return measure(
        MadeUp(HOST), RowFile(path, ABOUT), strategies(8), points(16, 8, (512, 2048)), repeats=5, left_s=tick,
        say=lambda line: None,
    )  # fmt: skip


def test_a_run_that_was_cut_goes_on_and_ends_with_the_same_rows(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    assert rows(whole)
    assert not rows(cut, budget=200)
    with cut.open("a", encoding="utf-8") as f:
        f.write('{"kind": "step", "strat')  # killed within a line
    while not rows(cut, budget=300):
        pass
    assert cut.read_bytes() == whole.read_bytes()


def test_rows_of_another_machine_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    RowFile(path, ABOUT)
    with pytest.raises(InputError, match="rows of another machine"):
        RowFile(path, {**ABOUT, "device": "some GPU"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}\n", ":1: expected an object with 'kind'"),
        ('{"kind": "step"}\n', ":1: expected a row 'about'"),
        ("x\n", ":1: not JSON"),
    ],
)
def test_files_that_are_no_rows_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_rows(path)


def test_the_fit_recovers_what_the_rows_were_made_from(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows(path)
    read = read_rows(path)
    found = fit(read, "versions")
    m = MadeUp
    assert found.slope_us == pytest.approx(m.SLOPE_US, rel=0.02)
    assert found.base_us == pytest.approx(m.BASE_US, rel=0.01)
    assert 1000 * found.kv_us_per_token == pytest.approx(m.KV_NS_PER_TOKEN, rel=0.05)
    assert 1000 * found.guard_us_per_token == pytest.approx(m.GUARD_NS, rel=0.05)
    assert found.update_us == m.UPDATE_US
    assert found.errors_percent["max_pad, not fitted"] < 1.0
    made = profile(read, "versions", "H200", "a test")
    assert parse_profile(made.to_json()) == made
    assert made.identity["timing"] == "made up"
    with pytest.raises(InputError, match="all_shapes needs two token counts"):
        fit(read[:3], "versions")


def test_the_floor_is_weights_over_bandwidth_until_flops_exceed_it() -> None:
    shard, g = model("Qwen2.5-3B").shard(1), gpu("H200")
    assert floor_us(shard, g, "bf16", 1, 0) == pytest.approx(1e6 * shard.weight_bytes("bf16") / g.bytes_per_s)
    assert floor_us(shard, g, "bf16", 128, 0) == floor_us(shard, g, "bf16", 1, 0)
    assert floor_us(shard, g, "bf16", 1024, 0) > floor_us(shard, g, "bf16", 1, 0)


def test_the_command_says_in_one_line_that_there_is_no_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--out", str(tmp_path / "rows.jsonl")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "rows.jsonl").exists()
    assert main(["bench", "--dry-run", "--repeats", "2", "--out", str(tmp_path / "rows.jsonl")]) == 0
    assert json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[0])["synthetic"] is True
