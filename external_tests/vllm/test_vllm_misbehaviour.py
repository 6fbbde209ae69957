"""A policy that raises or answers nonsense leaves serving intact, and is reported. Corrupt KV does not go unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from conftest import BLOCKS, SAME_LOGPROB, Run, about, outputs
from live.script import Script

ANSWERS = {
    "raises": "raise ZeroDivisionError('a bug')",
    "nonsense": "return object()",
    "nothing": "return None",
}


def write_policy(folder: Path, kind: str) -> None:
    """Most recently used first, until it misbehaves after some victims."""
    folder.mkdir(exist_ok=True)
    (folder / f"{kind}.py").write_text(
        "from dataclasses import dataclass\n"
        "from policies.evictors.lru import Lru as _Lru\n"
        "@dataclass(frozen=True)\n"
        f"class Bad{kind.capitalize()}(_Lru):\n"
        "    def next_victim(self, state, now_ns):\n"
        "        if state.clock > 60:\n"
        f"            {ANSWERS[kind]}\n"
        "        return super().next_victim(state, now_ns)\n",
        encoding="utf-8",
    )


@pytest.mark.parametrize("kind", ["raises", "nonsense"])
def test_a_policy_that_misbehaves_leaves_serving_intact_and_is_reported(
    kind: str, run: Run, site: Path, script: Script
) -> None:
    write_policy(site / "policies_of_a_user", kind)
    directory = run(kind, "--policy-path", site / "policies_of_a_user")
    assert outputs(directory) == [list(r.output) for r in script.requests]
    assert "next_victim" in about(directory)["dropped"]
    assert not about(directory)["host_failed"]
    decisions = pq.read_table(directory / "decisions.parquet")["action"].to_pylist()
    assert decisions.count("dropped") == 1
    text = (directory / "output.txt").read_text(encoding="utf-8")
    assert text.count("dropped, the engine's own order from here on") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--evictor", "belady_leaf"), "oracle"),
        (("--evictor", "lru", "--option", "horizn=3"), "horizn"),
        (("--evictor", "lrv"), "did you mean 'lru'"),
        (("--evictor", "lru", "--blocks", 3), "blocks=3"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    options: tuple[object, ...], said: str, site: Path, model: Path, script_path: Path
) -> None:
    out = site / "refused"
    given = ("replay", script_path, "--model", model, "--blocks", BLOCKS, "--out", out, *options)
    done = subprocess.run(
        [sys.executable, "-m", "live", *map(str, given)],
        cwd=site, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr[-2000:]
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last
    assert not out.exists()


ZEROED = """
import sys
from pathlib import Path
from live.script import Script
from live.vllm.engine import Engine
from live.vllm.settings import EvictionSettings
script = Script.open(Path(sys.argv[1]))
first = script.requests[0]
tokens = [*first.prompt, *first.output]
prompt = list(first.prompt)
# All but the last token are hit: a small model looks little further than that.
longer = tokens[: (len(tokens) - 2) // script.block_tokens * script.block_tokens + 1]
def answers(engine, zero):
    engine.serve(prompt, len(first.output))
    if zero:
        core = engine._engine.llm_engine.engine_core.engine_core
        for cache in core.model_executor.driver_worker.worker.model_runner.kv_caches:
            cache.zero_()
    return engine.serve(longer, 40)
with Engine(Path(sys.argv[2]), script.block_tokens, 40, EvictionSettings()) as engine:
    right = answers(engine, False)
    engine._engine.reset_prefix_cache()
    again = answers(engine, False)
    engine._engine.reset_prefix_cache()
    print("RESULT", *(abs(other.logprob - right.logprob) for other in (again, answers(engine, True))))
"""


def test_zeroed_blocks_show_in_the_log_probabilities(site: Path, model: Path, script_path: Path) -> None:
    """What the comparison of answers rests on: a cache hit on wrong KV shows."""
    done = subprocess.run(
        [sys.executable, "-c", ZEROED, str(script_path), str(model)],
        cwd=site,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT")), "")
    assert line, done.stderr[-2000:]
    again, zeroed = map(float, line.split()[1:])
    assert again < SAME_LOGPROB < 10 * SAME_LOGPROB < zeroed
