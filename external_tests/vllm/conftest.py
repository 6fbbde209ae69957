"""One model and one recorded script for the whole lane; every engine runs in a process of its own.

The processes start outside the repository, with a folder on their path that has what the host needs of it and not
`kernels`, which is also the name of a public distribution that transformers imports when it finds one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from live.script import Script

ROOT = Path(os.environ.get("FORESERVE_ROOT") or Path(__file__).resolve().parents[2])
BLOCKS = 30
SAME_LOGPROB = 1e-3  # fp32: a prompt computed in other pieces adds up in another order
Run = Callable[..., Path]


def command(site: Path, *arguments: object, **environment: str) -> str:
    """Run `python -m live ...`; return its standard output and error."""
    done = subprocess.run(
        [sys.executable, "-m", "live", *map(str, arguments)],
        cwd=site,
        env={**os.environ, "PYTHONPATH": str(site), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-3000:]
    return text


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    for package in ("traces", "policies", "live"):
        (folder / package).symlink_to(ROOT / package)
    return folder


@pytest.fixture(scope="session")
def model(site: Path) -> Path:
    given = os.environ.get("FORESERVE_TINY_MODEL")
    if given:
        return Path(given)
    command(site, "make-model", site / "model")
    return site / "model"


@pytest.fixture(scope="session")
def script_path(site: Path, model: Path) -> Path:
    path = site / "script.json"
    command(site, "record", "hover", "--model", model, "--workflows", 6, "--scale", 5, "--out", path)
    return path


@pytest.fixture(scope="session")
def script(script_path: Path) -> Script:
    return Script.open(script_path)


@pytest.fixture(scope="session")
def run(site: Path, model: Path, script_path: Path) -> Run:
    """Replay the script under an evictor, once a set of arguments; return the run's directory."""
    done: dict[tuple[object, ...], Path] = {}

    def replayed(evictor: str, *options: object, **environment: str) -> Path:
        key = (evictor, *options, *sorted(environment.items()))
        if key not in done:
            out = site / f"run{len(done)}"
            text = command(
                site, "replay", script_path, "--model", model, "--evictor", evictor, "--predictor", "markov",
                "--blocks", BLOCKS, "--out", out, *options, **environment,
            )  # fmt: skip
            (out / "output.txt").write_text(text, encoding="utf-8")
            done[key] = out
        return done[key]

    return replayed


def outputs(run: Path) -> list[list[int]]:
    return [tokens for tokens, _ in _answers(run)]


def logprobs(run: Path) -> list[float]:
    return [logprob for _, logprob in _answers(run)]


def _answers(run: Path) -> list[tuple[list[int], float]]:
    value: list[tuple[list[int], float]] = json.loads((run / "outputs.json").read_text(encoding="utf-8"))
    return value


def about(run: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((run / "live.json").read_text(encoding="utf-8"))
    return value
