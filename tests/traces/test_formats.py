from __future__ import annotations

import json
from pathlib import Path

import pytest

import traces
from traces import formats
from traces.errors import InputError

SAMPLES = {
    "csv": "arrival_s,prompt_tokens,output_tokens\n1,2,3\n",
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,1,1\n",
    "mooncake": json.dumps({"timestamp": 0, "input_length": 4, "output_length": 1, "hash_ids": [1]}) + "\n",
    "sharegpt": json.dumps(
        {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_content_decides_the_format(name: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.unknown"
    path.write_text(SAMPLES[name])
    assert formats.sniff(path) == name
    assert formats.load(path).provenance["format"] == name


def test_every_importer_file_is_a_format_with_typed_options() -> None:
    files = {p.stem.removeprefix("io_") for p in Path(traces.__path__[0]).glob("io_*.py")}
    assert set(formats.names()) == files | {"workload"}
    for name in formats.names():
        for option in formats.options(name).values():
            assert option.annotation is not option.empty, (name, option.name)
            assert option.default is not option.empty, (name, option.name)


def test_a_new_importer_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "io_lines.py").write_text(
        "import numpy as np\n"
        "from traces.flat import flat_workload\n"
        "def sniff(path, head):\n    return head.startswith(b'lines!')\n"
        "def read(path, tokens: int = 3):\n"
        "    n = len(path.read_text().split()) - 1\n"
        "    return flat_workload('l', None, np.full(n, tokens, np.int32), np.full(n, 1, np.int32), {})\n"
    )
    monkeypatch.setattr(traces, "__path__", [*traces.__path__, str(tmp_path)])
    path = tmp_path / "x"
    path.write_text("lines! a b")
    assert formats.load(path, tokens="5").prompt_tokens.tolist() == [5, 5]


def test_files_that_several_formats_recognise_are_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(SAMPLES["csv"])
    monkeypatch.setattr("traces.io_azure.sniff", lambda path, head: True)
    with pytest.raises(InputError, match="several formats fit: azure, csv; name one of"):
        formats.load(path)
    assert formats.load(path, "csv").n_requests == 1
