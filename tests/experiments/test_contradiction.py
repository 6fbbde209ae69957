"""Two words that name two models are refused; the model they agree on is taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.compose import compose
from traces.errors import InputError

FOURTEEN, EIGHT = "profile=H200x1--Qwen3-14B--bf16--vllm", "profile=H200x1--Qwen3-8B--bf16--vllm"


@pytest.mark.parametrize(
    ("words", "two"),
    [
        ([FOURTEEN, "model=Qwen3-32B"], f"{FOURTEEN} and model=Qwen3-32B"),
        (["model=Qwen3-14B", "engine=--model Qwen/Qwen3-8B"], 'model=Qwen3-14B and engine="--model Qwen/Qwen3-8B"'),
        ([EIGHT, "engine=--model Qwen/Qwen3-14B"], f'{EIGHT} and engine="--model Qwen/Qwen3-14B"'),
        ([FOURTEEN, "axes.model=[Qwen3-14B,Qwen3-32B]"], f"{FOURTEEN} and model=Qwen3-32B"),
        ([f"{FOURTEEN},H200x1--Qwen3-8B--bf16--vllm", "model=Qwen3-14B"], f"{EIGHT} and model=Qwen3-14B"),
    ],
)  # fmt: skip
def test_two_models_are_refused_in_one_line_that_names_both_words(
    words: list[str],
    two: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"{two} name two models, " in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["model=Qwen3-32B"],
        ["engine=--model Qwen/Qwen3-8B"],
        [FOURTEEN, "model=Qwen/Qwen3-14B"],
        [FOURTEEN, "engine=--model Qwen/Qwen3-14B-FP8"],
        ["model=Qwen3-8B", "engine=--model Qwen/Qwen3-8B"],
        ["axes.model=[Qwen3-8B,Qwen3-14B]"],
        [FOURTEEN, "gpu=H100", "tp=2"],
    ],
)
def test_one_model_may_be_named_twice_and_a_config_files_profile_be_replaced(words: list[str]) -> None:
    compose(words)


def test_a_config_json_is_compared_by_the_model_it_describes(tmp_path: Path) -> None:
    shape = {
        "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 8, "hidden_size": 1024, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 4096, "vocab_size": 32000,
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
    }  # fmt: skip
    for name in ("Qwen3-14B", "Small"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(shape))
    compose([FOURTEEN, f"model={tmp_path / 'Qwen3-14B' / 'config.json'}"])
    with pytest.raises(InputError, match="name two models, Qwen3-14B and Small"):
        compose([FOURTEEN, f"model={tmp_path / 'Small'}"])
