"""One model and one recorded script for the whole lane; engines run one after the other in one process.

What needs an environment or a mishap of its own gets its own process. Processes start outside the repository, with a
folder on their path that has what the host needs of it and not `kernels`, which is also the name of a public
distribution that transformers imports when it finds one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from live.script import Script

ROOT = Path(os.environ.get("FORESERVE_ROOT") or Path(__file__).resolve().parents[2])
BLOCKS = 30
SAME_LOGPROB = 1e-3  # fp32: a prompt computed in other pieces adds up in another order
Run = Callable[..., Path]
Command = Callable[..., str]


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
def live(site: Path) -> Iterator[Command]:
    """Run a command in the process that all share; return what it printed."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "served.py")],
        cwd=site, env={**os.environ, "PYTHONPATH": str(site)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout
    output = site / "output.txt"

    def command(*arguments: object) -> str:
        stuck = threading.Timer(600, process.kill)
        stuck.start()
        stdin.write(json.dumps({"argv": [str(a) for a in arguments], "output": str(output)}) + "\n")
        stdin.flush()
        code = stdout.readline().strip()
        stuck.cancel()
        text = output.read_text(encoding="utf-8") if output.exists() else ""
        assert code == "0", f"exit {code or 'without an answer'}: {text[-3000:]}"
        return text

    yield command
    stdin.close()
    process.wait(timeout=120)


@pytest.fixture(scope="session")
def model(site: Path, live: Command) -> Path:
    given = os.environ.get("FORESERVE_TINY_MODEL")
    if given:
        return Path(given)
    live("make-model", site / "model")
    return site / "model"


@pytest.fixture(scope="session")
def script_path(site: Path, model: Path, live: Command) -> Path:
    path = site / "script.json"
    live("record", "hover", "--model", model, "--workflows", 6, "--scale", 5, "--out", path)
    return path


@pytest.fixture(scope="session")
def script(script_path: Path) -> Script:
    return Script.open(script_path)


@pytest.fixture(scope="session")
def run(site: Path, model: Path, script_path: Path, live: Command) -> Run:
    """Replay the script under an evictor, once a set of arguments; return the run's directory."""
    done: dict[tuple[object, ...], Path] = {}

    def replayed(evictor: str, *options: object, blocks: int = BLOCKS, **environment: str) -> Path:
        key = (evictor, blocks, *options, *sorted(environment.items()))
        if key not in done:
            out = site / f"run{len(done)}"
            arguments = (
                "replay", script_path, "--model", model, "--evictor", evictor, "--predictor", "markov",
                "--blocks", blocks, "--out", out, *options,
            )  # fmt: skip
            text = command(site, *arguments, **environment) if environment else live(*arguments)
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
