"""The tiny model is the same whenever it is made."""

from __future__ import annotations

from pathlib import Path

from conftest import command


def test_making_the_model_twice_gives_the_same_bytes(site: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        command(site, "make-model", tmp_path / name, "--steps", 4)
    files = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert {"model.safetensors", "tokenizer.json", "config.json"} <= set(files)
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
