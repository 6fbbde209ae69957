"""Malformed profile files: each answers with its one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibration import catalog
from calibration.__main__ import main
from traces.errors import InputError

GOOD = (catalog.PROFILES / "H200x1--Qwen3-8B--bf16--vllm.json").read_text(encoding="utf-8")


def broken(**changes: Any) -> str:
    body = json.loads(GOOD)
    for name, value in changes.items():
        if value is None:
            del body[name]
        else:
            body[name] = value
    return json.dumps(body)


CASES = [
    (broken(linear_ps=None), "field 'linear_ps': missing"),
    (broken(linear_ps=[1, 2]), "field 'linear_ps': needs one value for each of 'linear_tokens'"),
    (broken(linear_tokens=[2, 1], linear_ps=[1, 1]), "field 'linear_tokens': must ascend from at least 1"),
    (broken(linear_tokens=[0, 1], linear_ps=[1, 1]), "field 'linear_tokens': must ascend from at least 1"),
    (broken(linear_tokens=[1, 2], linear_ps=[5, 4]), "field 'linear_ps': must not decrease"),
    (broken(linear_tokens=[1, 2], linear_ps="12"), "field 'linear_ps': expected a list of whole numbers"),
    (broken(gpu_bytes=1.5), "field 'gpu_bytes': got 1.5, expected a whole number of at least 0"),
    (broken(overhead_ps=-1), "field 'overhead_ps': got -1, expected a whole number of at least 0"),
    (broken(per_seq_ps=True), "field 'per_seq_ps': got True, expected a whole number of at least 0"),
    (broken(identity={"gpu": "H200"}), "field 'identity': lacks 'tp'"),
    (broken(identity=3), "field 'identity': expected an object"),
    (broken(schema=99), "field 'schema': got 99, this version reads 1"),
    ("[]", "a profile is a JSON object"),
]


@pytest.mark.parametrize(("text", "message"), CASES, ids=[c[1][:45] for c in CASES])
def test_malformed_profile_names_file_field_and_fault(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as e:
        catalog.open(path)
    assert str(e.value) == f"{path}: {message}"


def test_text_that_is_no_json_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('{\n"schema": 1,\n oops', encoding="utf-8")
    with pytest.raises(InputError, match=r"p\.json:3: not JSON: Expecting property name enclosed in double"):
        catalog.open(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: No such file or directory$"):
        catalog.open(tmp_path / "none.json")


def test_command_line_prints_one_line_and_exits_with_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "H200x1--Qwen3-9B--bf16--vllm"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("error: unknown profile 'H200x1--Qwen3-9B--bf16--vllm'; did you mean ")
    bad = tmp_path / "rows.csv"
    bad.write_text("system,model\n", encoding="utf-8")
    assert main(["check", "--rows", str(bad)]) == 2
    assert capsys.readouterr().err == (
        f"error: {bad}:1: field 'quant': missing; a table of steps has system, model, quant, tp, kind, b, n, "
        "aux, t_ms\n"
    )


def test_show_says_what_from_where_and_how_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "H100x2--Qwen3-32B--bf16--vllm"]) == 0
    out = capsys.readouterr().out
    for part in ("timing: kernel tables", "MAPE", "bias", "real engine", "KV blocks", "Apache-2.0", "note:"):
        assert part in out
