"""Make a script from a workload: its prompts as tokens, and what a model answers."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from live.rekey import TokenPaths, TokenSource, serial_order
from live.script import Content, Script, ScriptRequest, contents_of, renumbered
from live.tiny.text import document
from live.vllm.engine import Engine
from traces import workloads
from traces.errors import InputError
from traces.resample import resample

BLOCK_TOKENS = 32  # the smallest that attention on a CPU allows
_AT_ONCE = 4
_MAX_TOKENS = 2000


def record(workload: str, model: Path, workflows: int, scale: int, seed: int) -> Script:
    """Serve a sample of an embedded workload in the engine as installed, and return what was sent and answered.

    A request that would compute blocks which an earlier one has computed is left out: an equal answer to an equal
    prompt. vLLM keeps both copies, the simulator one (docs/adr/0004), and a comparison would be of that.
    scale: tokens of the workload to one of the script. Raises InputError for a request that exceeds 2,000 tokens.
    """
    taken = resample(workloads.open(workload), workflows, seed)
    paths = TokenPaths(taken, _text_source(model, seed), scale, BLOCK_TOKENS)
    rows: list[ScriptRequest] = []
    computed: set[Content] = set()
    with Engine(model, BLOCK_TOKENS, 2 * _MAX_TOKENS // BLOCK_TOKENS, None) as engine:
        for stage in serial_order(taken, _AT_ONCE, seed):
            prompt, wanted = paths.prompt(stage), paths.output_tokens(stage)
            if len(prompt) + wanted > _MAX_TOKENS:
                raise InputError(
                    f"{workload}: a request of {len(prompt) + wanted} tokens at scale {scale}; "
                    f"allowed: {_MAX_TOKENS}; give a larger scale"
                )
            output = engine.serve(prompt, wanted).tokens
            paths.answered(stage, len(prompt), output)
            contents = contents_of([*prompt, *output], BLOCK_TOKENS)
            found = next((i for i, c in enumerate(contents) if c not in computed), len(contents))
            if found > (len(prompt) - 1) // BLOCK_TOKENS:
                continue
            computed.update(contents)
            agent = int(taken.stage_agent[stage])
            rows.append(
                ScriptRequest(
                    int(taken.stage_workflow[stage]),
                    len(rows),
                    taken.agents[agent] if agent >= 0 else "unnamed",
                    tuple(prompt),
                    tuple(output),
                    finished=False,
                )
            )
    return renumbered(rows, BLOCK_TOKENS)


def _text_source(model: Path, seed: int) -> TokenSource:
    """Tokens of generated text, so that the model meets what it has learned."""
    transformers: Any = importlib.import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(model))

    def source(kind: int, id: int, n: int) -> Sequence[int]:
        tokens: list[int] = []
        part = 0
        while len(tokens) < n:
            # Far from the documents that the model was trained on, whose ids have one number.
            tokens += tokenizer.encode(document(seed, kind, id, part))
            part += 1
        return tokens[:n]

    return source
