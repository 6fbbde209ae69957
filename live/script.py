"""A script: requests with token ids, in the order they are sent, one after the other. Both hosts can play it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from traces.errors import InputError

_VERSION = 1
Content = str  # a digest of the tokens from the root to the end of a block


@dataclass(frozen=True)
class ScriptRequest:
    """One request. `stage` is its place in the script; `finished`: the workflow sends none after it.

    output   the tokens a model answered when the script was recorded
    """

    workflow: int
    stage: int
    agent: str
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    finished: bool


@dataclass(frozen=True)
class Script:
    """Requests of several workflows, interleaved. Workflows are numbered by their first request.

    agents         in the order in which workflow after workflow names them
    block_tokens   KV block size; no prompt is a whole number of blocks, since vLLM then computes one block twice
    """

    agents: tuple[str, ...]
    block_tokens: int
    requests: tuple[ScriptRequest, ...]

    @property
    def workflows(self) -> int:
        """How many workflows there are."""
        return 1 + max((r.workflow for r in self.requests), default=-1)

    def errors(self) -> list[str]:
        """Return what breaks the rules above, one line each. Does not mutate."""
        out = []
        seen: dict[int, None] = {}
        last: dict[int, int] = {}
        for i, r in enumerate(self.requests):
            seen[r.workflow] = None
            last[r.workflow] = i
            if r.stage != i:
                out.append(f"request {i}: field 'stage' is {r.stage}")
            if not r.prompt or not r.output:
                out.append(f"request {i}: empty prompt or output")
            if len(r.prompt) % self.block_tokens == 0:
                out.append(f"request {i}: a prompt of whole blocks")
        if list(seen) != list(range(len(seen))):
            out.append("field 'workflow' does not count first requests")
        if any(r.finished != (last[r.workflow] == i) for i, r in enumerate(self.requests)):
            out.append("field 'finished' must mark the last request of each workflow, and no other")
        by_workflow = sorted(self.requests, key=lambda r: r.workflow)
        if tuple(dict.fromkeys(r.agent for r in by_workflow)) != self.agents:
            out.append("field 'agents' is not in the order of workflows")
        return out

    def save(self, path: Path) -> None:
        """Write the script as JSON."""
        text = json.dumps({"version": _VERSION, **asdict(self)}, separators=(",", ":"))
        path.write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def open(path: Path) -> Script:
        """Read a script. Raises InputError for a file that is none, and for one that breaks its own rules."""
        try:
            given: Any = json.loads(path.read_text(encoding="utf-8"))
            if given.pop("version") != _VERSION:
                raise InputError(f"{path}: another version than {_VERSION}")
            rows = [
                ScriptRequest(**{**r, "prompt": tuple(r["prompt"]), "output": tuple(r["output"])})
                for r in given.pop("requests")
            ]
            script = Script(tuple(given["agents"]), int(given["block_tokens"]), tuple(rows))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError, TypeError, KeyError, AttributeError) as e:
            raise InputError(f"{path}: no script: {type(e).__name__}: {e}") from e
        problems = script.errors()
        if problems:
            raise InputError(f"{path}: {problems[0]}")
        return script


def renumbered(requests: list[ScriptRequest], block_tokens: int) -> Script:
    """Return the script of requests whose workflows have any numbers; `stage` and `finished` are set here."""
    number: dict[int, int] = {}
    last = {r.workflow: i for i, r in enumerate(requests)}
    rows = [
        replace(
            r,
            workflow=number.setdefault(r.workflow, len(number)),
            stage=i,
            finished=last[r.workflow] == i,
        )
        for i, r in enumerate(requests)
    ]
    agents = tuple(dict.fromkeys(r.agent for r in sorted(rows, key=lambda r: r.workflow)))
    return Script(agents, block_tokens, tuple(rows))


def contents_of(tokens: Sequence[int], block_tokens: int) -> list[Content]:
    """Return the content of every full block: a chain of digests."""
    out: list[Content] = []
    above = b""
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        block = np.array(tokens[start : start + block_tokens], dtype="<u4").tobytes()
        above = blake2b(above + block, digest_size=12).digest()
        out.append(above.hex())
    return out
