"""Serve a script in vLLM under an evictor."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from live.script import Script
from live.vllm.draftsettings import DraftSettings
from live.vllm.engine import Answer, Engine
from live.vllm.settings import EvictionSettings
from live.vllm.ticks import overlapping, write_ticks
from traces.errors import InputError


@dataclass(frozen=True)
class Overlap:
    """How requests overlap: `at_once` workflows are open, a pause of up to `pause_ticks` steps follows each answer."""

    at_once: int
    pause_ticks: int = 8
    max_num_batched_tokens: int = 2048
    seed: int = 0


def replay(
    script: Script,
    model: Path,
    settings: EvictionSettings,
    blocks: int,
    overlap: Overlap | None = None,
    drafting: DraftSettings | None = None,
) -> list[Answer]:
    """Send the script's requests, one after the other or overlapping; return the answers in the script's order.

    The run's tables, `live.json` and `outputs.json` (token ids and a log probability a request) are in
    `settings.log_dir` then. Raises InputError where that exists, where a policy cannot be served live, or where a
    request could never fit into `blocks`.
    """
    settings.load_evictor()  # refused here, rather than by an engine half started
    settings.load_predictor()
    settings.load_host_evictor()
    settings.load_prefetcher()
    directory = Path(settings.log_dir)
    if directory.exists():
        raise InputError(f"{directory}: exists already; a run is never written over another")
    largest = max(len(r.prompt) + len(r.output) for r in script.requests)
    if -(-largest // script.block_tokens) > blocks:
        raise InputError(
            f"blocks={blocks}: the largest request takes {-(-largest // script.block_tokens)} of them"
        )
    aside = directory.with_name(f".{directory.name}.drafting.json")
    if drafting is not None:
        drafting = replace(drafting, log_file=str(aside))
    outputs: list[Answer] = []
    sent: list[int] = []
    if overlap is None:
        with Engine(model, script.block_tokens, blocks, settings, drafting=drafting) as engine:
            for r in script.requests:
                sender = {
                    "wf_id": r.workflow, "stage": r.stage, "agent": r.agent, "wf_finished": int(r.finished),
                }  # fmt: skip
                outputs.append(engine.serve(r.prompt, len(r.output), sender))
    else:
        budget = overlap.max_num_batched_tokens
        with Engine(
            model, script.block_tokens, blocks, settings, max_num_seqs=overlap.at_once,
            max_num_batched_tokens=budget, drafting=drafting,
        ) as engine:  # fmt: skip
            outputs, sent = overlapping(script, engine, overlap.at_once, overlap.pause_ticks, overlap.seed)
    if not directory.is_dir():
        raise InputError(f"{directory}: the engine ended without writing its log")
    (directory / "outputs.json").write_text(json.dumps(outputs) + "\n", encoding="utf-8")
    if drafting is not None and aside.is_file():
        aside.rename(directory / "drafting.json")
    if overlap is not None:
        write_ticks(directory, sent, overlap.at_once, overlap.max_num_batched_tokens)
    return outputs
