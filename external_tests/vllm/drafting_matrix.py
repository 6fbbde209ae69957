"""Serve a script once for each combination of drafter and budget, in one engine; print what was said and verified."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from live.script import Script
from live.vllm.draftsettings import DraftSettings
from live.vllm.engine import Engine

BLOCKS = 300


def main(script_path: str, model: str, count: str, combinations: str) -> None:
    """Arguments: script, model, requests of the script to serve, combinations as JSON."""
    script = Script.open(Path(script_path))
    out = []
    drafting = DraftSettings(agents=script.agents, tokens_max=32)
    with Engine(Path(model), script.block_tokens, BLOCKS, None, drafting=drafting) as engine:
        core = engine._engine.llm_engine.engine_core.engine_core
        proposer = core.model_executor.driver_worker.worker.model_runner.drafter
        for combination in json.loads(combinations):
            given = dict(combination)
            structure = given.pop("structure", None)
            engine._engine.reset_prefix_cache()
            host = proposer.use(call_ms_max=0, keep_steps=True, **given)
            answers = []
            for r in script.requests[: int(count)]:
                sender = {"wf_id": r.workflow, "stage": r.stage, "agent": r.agent}
                if structure is not None:
                    sender |= {"structure": structure, "query_id": f"q{r.workflow}", "agent_id": r.agent}
                answers.append(engine.serve(r.prompt, len(r.output), sender).tokens)
            out.append({"answers": answers, "verified": host.verified_steps, **host.about()})
    print("RESULT", json.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
