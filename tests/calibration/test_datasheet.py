"""GPUs from datasheet files and KV caches in eight bits: what they price, and each fault's one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibration import catalog, datasheet, roofline
from calibration.__main__ import main
from calibration.gpus import GPUS
from calibration.kv_precision import with_kv_precision
from calibration.models import model
from experiments.inputs import open_profile
from experiments.settings import Settings
from traces.errors import InputError

SHEET: dict[str, Any] = {
    "name": "B200",
    "memory_bytes": 180 << 30,
    "bandwidth_bytes_per_s": 8e12,
    "bf16_flops_per_s": 2250 * 10**12,
    "fp8_flops_per_s": 4500 * 10**12,
    "pcie_bytes_per_s": 50 * 10**9,
}
FIELDS = "name, memory_bytes, bandwidth_bytes_per_s, bf16_flops_per_s, fp8_flops_per_s, pcie_bytes_per_s"


def write(tmp_path: Path, body: object) -> Path:
    path = tmp_path / "my_gpu.json"
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


def test_a_datasheet_with_a_listed_gpus_rates_prices_like_it(tmp_path: Path) -> None:
    g = GPUS["H200"]
    body = {
        "name": "Mine",
        "memory_bytes": g.memory_bytes,
        "bandwidth_bytes_per_s": g.bytes_per_s,
        "bf16_flops_per_s": g.bf16_flop_per_s,
        "fp8_flops_per_s": g.fp8_flop_per_s,
        "pcie_bytes_per_s": g.pcie_bytes_per_s,
        "nvlink": True,
    }
    mine = roofline.profile("Qwen3-32B", gpu=str(write(tmp_path, body)), tp=2)
    listed = roofline.profile("Qwen3-32B", gpu="H200", tp=2)
    assert mine.name == "Minex2--Qwen3-32B--bf16--vllm"
    for field in (
        "kv_read_ps_per_token",
        "attention_as_per_pair",
        "gpu_bytes",
        "pcie_bytes_per_s",
        "per_seq_ps",
    ):
        assert getattr(mine, field) == getattr(listed, field)
    # Only the all-reduce may differ: it has the nearest table of NVLink.
    assert mine.linear_ps_at(8192) == pytest.approx(listed.linear_ps_at(8192), rel=0.05)


def test_twice_the_bandwidth_halves_a_reads_price(tmp_path: Path) -> None:
    read = {}
    for rate in (2, 4):
        body = {**SHEET, "bandwidth_bytes_per_s": rate * 10**12, "like": "A100"}
        read[rate] = roofline.profile("Qwen3-8B", gpu=str(write(tmp_path, body))).kv_read_ps_per_token
    assert abs(read[2] - 2 * read[4]) <= 1


def test_efficiency_is_of_the_gpu_named_or_of_the_nearest_bandwidth(tmp_path: Path) -> None:
    assert datasheet.load(write(tmp_path, SHEET)).nearest == "h200_sxm"
    assert (
        datasheet.load(write(tmp_path, {**SHEET, "bandwidth_bytes_per_s": 300 * 10**9})).nearest == "rtx4090"
    )
    assert datasheet.load(write(tmp_path, {**SHEET, "like": "L40S"})).nearest == "rtx4090"


def test_profile_is_labelled_roofline_with_a_wide_error(tmp_path: Path) -> None:
    profile = roofline.profile("Qwen3-8B", gpu=str(write(tmp_path, SHEET)), precision="fp8")
    assert profile.identity["timing"] == "roofline"
    assert (profile.error["mape_percent"], profile.error["p95_percent"]) == (30.0, 60.0)
    assert profile.provenance["datasheet"] == "B200 (datasheet file my_gpu.json)"
    assert profile.gpu_bytes == 180 << 30


def test_runs_take_a_datasheet_with_any_model(tmp_path: Path) -> None:
    path = str(write(tmp_path, SHEET))
    named = open_profile(Settings(gpu=path, model="Qwen3-8B"))
    assert named.identity["gpu"] == "B200"
    replaced = open_profile(Settings(gpu=path, profile="H100x2--Qwen3-32B--bf16--vllm", kv_precision="fp8"))
    assert replaced.name == "B200x2--Qwen3-32B--bf16--vllm"
    assert replaced.kv_bytes_per_token * 2 == model("Qwen3-32B").shard(2).kv_bytes_per_token()


def test_fp8_cache_halves_bytes_and_keeps_the_price_of_reads() -> None:
    # Qwen3-8B: 36 layers, 8 KV heads of 128: 2·36·8·128 = 73,728 numbers a token.
    half = roofline.profile("Qwen3-8B", gpu="H200", kv_precision="fp8")
    full = roofline.profile("Qwen3-8B", gpu="H200", kv_precision="bf16")
    assert (half.kv_bytes_per_token, full.kv_bytes_per_token) == (73_728, 147_456)
    assert half.kv_read_ps_per_token == full.kv_read_ps_per_token
    assert half.identity["kv_precision"] == "fp8"
    assert "kv_precision" not in full.identity
    assert with_kv_precision(half, "fp8") == half
    committed = catalog.open("H200x1--Qwen3-8B--bf16--vllm")
    assert with_kv_precision(committed, "fp8").kv_bytes_per_token == 73_728
    with pytest.raises(
        InputError, match=r"^unknown kv_precision 'fp9'; did you mean 'fp8'\? allowed: bf16, fp8$"
    ):
        with_kv_precision(committed, "fp9")


CASES = [
    ([], f"a GPU datasheet is a JSON object with {FIELDS}"),
    ({k: v for k, v in SHEET.items() if k != "memory_bytes"}, "field 'memory_bytes': missing"),
    ({k: v for k, v in SHEET.items() if k != "name"}, "field 'name': missing"),
    ({**SHEET, "name": 200}, "field 'name': got 200, expected text"),
    (
        {**SHEET, "name": "B--200"},
        "field 'name': got 'B--200', expected letters and digits with single '.', '_' or '-' between",
    ),
    ({**SHEET, "name": "H200"}, "field 'name': 'H200' is a listed GPU: choose another name"),
    (
        {**SHEET, "bandwidth_bytes_per_s": "8 TB/s"},
        "field 'bandwidth_bytes_per_s': got '8 TB/s', expected a whole number of at least 1",
    ),
    (
        {**SHEET, "bf16_flops_per_s": 0},
        "field 'bf16_flops_per_s': got 0, expected a whole number of at least 1",
    ),
    (
        {**SHEET, "fp8_flops_per_s": -1},
        "field 'fp8_flops_per_s': got -1, expected a whole number of at least 0",
    ),
    (
        {**SHEET, "pcie_bytes_per_s": True},
        "field 'pcie_bytes_per_s': got True, expected a whole number of at least 1",
    ),
    ({**SHEET, "memory_bytes": 1.5}, "field 'memory_bytes': got 1.5, expected a whole number of at least 1"),
    (
        {**SHEET, "memory_bytes": 10**21},
        "field 'memory_bytes': got a number of 22 digits, expected at most 10^20",
    ),
    ({**SHEET, "nvlink": "yes"}, "field 'nvlink': got 'yes', expected true or false"),
    (
        {**SHEET, "like": "H20"},
        "field 'like': unknown gpu 'H20'; did you mean 'H200'? allowed: A100, A6000, H100, H200, L40S, RTX4090, "
        "RTXPRO6000",
    ),
    (
        {**SHEET, "memory_byte": 1},
        "unknown datasheet field 'memory_byte'; did you mean 'memory_bytes'? allowed: bandwidth_bytes_per_s, "
        "bf16_flops_per_s, fp8_flops_per_s, like, memory_bytes, name, nvlink, pcie_bytes_per_s",
    ),
]


@pytest.mark.parametrize(("body", "message"), CASES, ids=[c[1][:45] for c in CASES])
def test_malformed_datasheet_names_file_field_and_fault(tmp_path: Path, body: object, message: str) -> None:
    path = write(tmp_path, body)
    with pytest.raises(InputError) as e:
        roofline.profile("Qwen3-8B", gpu=str(path))
    assert str(e.value) == f"{path}: {message}"


def test_unreadable_datasheets_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: No such file or directory$"):
        datasheet.gpu(str(tmp_path / "none.json"))
    path = tmp_path / "g.json"
    path.write_text('{\n"name" 1}', encoding="utf-8")
    with pytest.raises(InputError, match=r"g\.json:2: not JSON: Expecting ':' delimiter$"):
        datasheet.gpu(str(path))
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"g\.json: not UTF-8 text$"):
        datasheet.gpu(str(path))


def test_a_gpu_without_fp8_is_refused_fp8(tmp_path: Path) -> None:
    path = write(tmp_path, {**SHEET, "fp8_flops_per_s": 0})
    with pytest.raises(InputError, match=r"^B200 has no fp8 tensor cores: use precision bf16$"):
        roofline.profile("Qwen3-8B", gpu=str(path), precision="fp8")


def test_command_writes_a_profile_that_opens_or_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "profile.json"
    argv = ["roofline", "--model", "Qwen3-8B", "--gpu", str(write(tmp_path, SHEET)), "--out", str(out)]
    assert main([*argv, "--kv-cache-dtype", "fp8"]) == 0
    assert "B200x1--Qwen3-8B--bf16--vllm   timing: roofline" in capsys.readouterr().out
    assert catalog.open(out).kv_bytes_per_token == 73_728
    out.unlink()
    write(tmp_path, {**SHEET, "memory_bytes": 1 << 30})
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: B200x1--Qwen3-8B--bf16 does not fit: ")
    assert printed.err.count("\n") == 1
    assert not out.exists()
