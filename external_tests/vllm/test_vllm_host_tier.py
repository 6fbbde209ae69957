"""The host tier in vLLM: loads and prefetches as in the simulator, unchanged outputs, memory that lies is caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from calibration import parity
from conftest import SAME_LOGPROB, Run, about, logprobs, outputs
from live.script import Script
from traces.runlog import read_run

# Options of `replay`; what the simulator knows as well, and what it does otherwise (docs/adr/0010).
SAME = {
    "pressed": ("--host-blocks", 60),
    "ordered": ("--host-blocks", 34, "--host-evictor", "lfu"),
    "prefetching": ("--host-blocks", 200, "--prefetcher", "conservative", "--load-back", "never"),
    "displacing": ("--host-blocks", 200, "--prefetcher", "aggressive"),
}
OTHER = {"write_back": ("--host-blocks", 60, "--host-write", "write_back", "--host-evictor", "lookahead")}


@pytest.mark.parametrize("tier", SAME)
def test_loads_and_prefetches_are_the_simulators(tier: str, run: Run, script: Script) -> None:
    outcome = parity.compare(script, run("lookahead", *SAME[tier]))
    assert outcome.equal, outcome
    assert outcome.host_hit_tokens > 0 or outcome.prefetched > 20
    assert outcome.victims > 50


@pytest.mark.parametrize("tier", [*SAME, *OTHER])
def test_what_came_from_the_host_changes_no_output(tier: str, run: Run, script: Script) -> None:
    directory = run("lookahead", *(SAME | OTHER)[tier])
    assert outputs(directory) == [list(r.output) for r in script.requests]
    assert logprobs(directory) == pytest.approx(logprobs(run("stock")), abs=SAME_LOGPROB)
    told = about(directory)["host_tier"]
    assert not about(directory)["host_failed"]
    assert not told["corrupt"]
    assert not told["evictor_dropped"]
    log = read_run(directory)
    found = log.column("requests", "gpu_hit_tokens") + log.column("requests", "host_hit_tokens")
    computed = log.column("requests", "prefilled_tokens")
    assert (found + computed == log.column("requests", "prompt_tokens")).all()


DAMAGED = """
import sys
from pathlib import Path
from live.script import Script
from live.vllm.engine import Engine
from live.vllm.settings import EvictionSettings
script = Script.open(Path(sys.argv[1]))
settings = EvictionSettings(host_blocks=200, agents=script.agents, log_dir=sys.argv[3])
answers = []
with Engine(Path(sys.argv[2]), script.block_tokens, 30, settings) as engine:
    from vllm.distributed.kv_transfer import get_kv_transfer_group
    for r in script.requests:
        if r.stage % 10 == 9:
            for host in get_kv_transfer_group()._memory.host.values():
                host.zero_()
        sender = {"wf_id": r.workflow, "stage": r.stage, "agent": r.agent, "wf_finished": int(r.finished)}
        answers.append(engine.serve(r.prompt, len(r.output), sender).tokens)
print("RESULT", answers == [list(r.output) for r in script.requests])
"""


def test_zeroed_host_blocks_are_caught_and_computed_again(
    site: Path, model: Path, script_path: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DAMAGED, str(script_path), str(model), str(tmp_path / "run")],
        cwd=site, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert "RESULT True" in done.stdout, done.stdout[-300:] + done.stderr[-2000:]
    assert about(tmp_path / "run")["host_tier"]["corrupt"] > 0
    log = read_run(tmp_path / "run")
    noted = log.select("decisions", "family", "host_tier") & log.select("decisions", "action", "corrupt")
    assert noted.any()
    assert log.column("requests", "host_hit_tokens").sum() > 0
