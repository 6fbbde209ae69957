"""Tables of cases: names in any spelling, rows that cannot be served, order, and accuracy on rows not fitted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibration import constants as data
from calibration.__main__ import main
from calibration.predict_models import PUBLISHED, shape
from calibration.predict_names import precision, profile, system
from calibration.predict_table import FIELDS, Settings, predict_case, predict_table
from traces.errors import InputError

HEAD = "model,system,precision,tp,isl,osl,concurrency\n"


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cases.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_spelling_of_a_case_does_not_change_its_prediction(tmp_path: Path) -> None:
    answers = predict_table(
        table(
            tmp_path,
            "Extra,Model,SYSTEM,Precision,TP,isl,osl,Concurrency\n"
            "x,meta-llama/Llama-3.1-8B-Instruct,h100_sxm,bf16,1,256,32,4\n"
            "y,llama3.1_8b,NVIDIA H100 80GB HBM3,FP16,1.0,256.0,32.0,4.0\n"
            'z,"Meta-Llama-3.1-8B",H100,,1,256,32,4\n',
        )
    )
    figures = [[a[f] for f in FIELDS] for a in answers]
    assert figures[0] == figures[1] == figures[2]
    assert all(x > 0 for x in figures[0])


def test_a_row_that_cannot_be_served_is_null_and_the_others_go_on(tmp_path: Path) -> None:
    answers = predict_table(
        table(
            tmp_path,
            HEAD + "nope-7B,h100_sxm,bf16,1,64,8,1\n"
            "Llama-3.1-70B,h100_sxm,bf16,1,64,8,1\n"
            "Qwen3-8B,a100_sxm,fp8,1,64,8,1\n"
            "Qwen3-8B,h100_sxm,bf16,3,64,8,1\n"
            "Qwen3-8B,h100_sxm,bf16,1,64,many,1\n"
            "Qwen3-8B,h100_sxm,bf16\n"
            "Qwen3-8B,gh200,bf16,1,64,8,1\n"
            "Qwen3-8B,h100_sxm,bf16,1,40000,2000,1\n"
            "Qwen3-8B,h100_sxm,bf16,1,64,8,1\n",
        )
    )
    assert len(answers) == 9
    for answer in answers[:-1]:
        assert all(answer[f] is None for f in FIELDS)
        assert "\n" not in answer["error"]
    assert "error" not in answers[-1]
    assert "does not fit" in answers[1]["error"]


def test_end_to_end_and_throughput_follow_from_the_two_latencies(tmp_path: Path) -> None:
    [a] = predict_table(table(tmp_path, HEAD + "Qwen3-32B,h200_sxm,fp8,2,512,64,16\n"))
    assert a["e2e_ms"] == pytest.approx(a["ttft_ms"] + 63 * a["tpot_ms"], rel=1e-4)
    assert a["throughput_tok_s"] == pytest.approx(16 * 64 / a["e2e_ms"] * 1e3, rel=1e-4)


def test_one_output_token_has_no_time_per_token(tmp_path: Path) -> None:
    [a] = predict_table(table(tmp_path, HEAD + "Qwen3-8B,h200_sxm,bf16,1,512,1,4\n"))
    assert a["tpot_ms"] == 0
    assert a["e2e_ms"] == a["ttft_ms"] > 0


def test_missing_column_is_one_line_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path, "model,system,precision,tp,isl,osl\nQwen3-8B,h100_sxm,bf16,1,64,8\n")
    assert main(["predict", "--rows", str(path), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "concurrency" in err
    assert err.count("\n") == 1


def test_json_output_is_a_list_in_row_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path, HEAD + "Qwen3-8B,h100,bf16,1,64,8,1\nQwen3-8B,h100,bf16,1,4096,8,1\n")
    assert main(["predict", "--rows", str(path), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["ttft_ms"] < second["ttft_ms"]


@pytest.mark.parametrize("wrong", ["B7000", "", "GB200"])
def test_unknown_systems_are_refused(wrong: str) -> None:
    with pytest.raises(InputError):
        system(wrong)


def test_precision_not_given_is_the_checkpoints() -> None:
    assert precision("", "nvidia/Llama-3.1-8B-Instruct-FP8", shape("Llama-3.1-8B"))[0] == "fp8"
    assert precision("nan", "Qwen3-8B", shape("Qwen3-8B"))[0] == "bf16"
    assert precision("bf16", "gpt-oss-20b", shape("openai/gpt-oss-20b"))[0] == "mxfp4"
    assert precision("FP8_BLOCK", "Qwen3-8B", shape("Qwen3-8B"))[0] == "fp8"


# Billions of parameters as the models' cards state them.
CARDS = {
    "Qwen3-0.6B": 0.6, "Qwen3-4B": 4.0, "Qwen3-235B-A22B": 235, "Qwen2.5-7B": 7.6, "Qwen2.5-72B": 72.7,
    "Llama-3.1-405B": 405, "Llama-3.2-1B": 1.24, "Llama-3.2-3B": 3.2, "Llama-2-7B": 6.7, "Llama-2-13B": 13.0,
    "Llama-4-Scout-17B-16E": 107, "Mistral-7B": 7.25, "Mistral-Nemo": 12.2, "Mixtral-8x7B": 46.7,
    "Mixtral-8x22B": 141, "Yi-34B": 34.4, "Phi-4": 14.7, "CodeLlama-34B": 33.7, "gpt-oss-120b": 116.8,
    "Qwen3-Coder-480B-A35B": 480,
}  # fmt: skip


def test_shapes_hold_the_parameters_their_cards_state() -> None:
    known = {m.name: m for m in PUBLISHED}
    for name, billions in CARDS.items():
        assert known[name].params / 1e9 == pytest.approx(billions, rel=0.03), name


def test_names_of_fine_tunes_are_their_shapes() -> None:
    assert shape("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B").name == "Qwen2.5-32B"
    assert shape("RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic").name == "Llama-3.1-70B"
    assert shape("Qwen/Qwen3-30B-A3B-Instruct-2507").name == "Qwen3-30B-A3B"
    with pytest.raises(InputError, match="did you mean"):
        shape("Qwen3-9B")


def test_catalogue_pricing_is_the_committed_profile() -> None:
    named = profile("Qwen3-8B", "H100", "bf16", 1, "catalogue")
    assert named.profile.name == "H100x1--Qwen3-8B--bf16--vllm"
    assert named.notes == ()


def test_time_per_token_of_rows_not_fitted_is_within_the_goal() -> None:
    rows = pd.read_csv(data.DATA / "serving.csv")
    held = rows[(rows.gpu == "H200") & rows.tp.isin([4, 8]) & (rows.osl == 1024)].iloc[::2]
    error = []
    for r in held.itertuples():
        case = {
            "model": r.model, "system": r.gpu, "precision": r.precision, "tp": str(r.tp), "isl": str(r.isl),
            "osl": str(r.osl), "concurrency": str(r.concurrency),
        }  # fmt: skip
        error.append(abs(predict_case(case, "row", Settings())["tpot_ms"] / r.tpot_ms - 1))
    assert np.mean(error) < 0.05
    assert np.max(error) < 0.12
