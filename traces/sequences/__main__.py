"""Make a file of recorded sequences: `python -m traces.sequences KIND FOLDER OUT.json`.

KIND: autocoderover (tools, in the order they were called), autocoderover_roles (who made each LLM call),
sweagent (commands), chatdev (phase of each turn), magentic (who speaks). Names that are not of the known vocabulary
of a source count as one symbol, so that no text of a record gets in.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from traces.errors import InputError, nearest
from traces.sequences import encode

Run = tuple[str, list[str]]

ACR_TOOLS = (
    "search_class", "search_class_in_file", "search_code", "search_code_in_file", "search_method",
    "search_method_in_class", "search_method_in_file", "write_patch",
)  # fmt: skip
SWE_COMMANDS = (
    "create", "edit", "exit_cost", "exit_format", "find_file", "goto", "open", "scroll_down", "scroll_up", "search_dir",
    "search_file", "submit",
)  # fmt: skip
SHELL = ("cat", "cd", "echo", "git", "grep", "ls", "pip", "pytest", "python", "rm", "sed")
MAGENTIC = ("Assistant", "ComputerTerminal", "FileSurfer", "Orchestrator", "WebSurfer", "human")
_PHASE = re.compile(r"\*\*[^*\n]+ on : (\w+), turn \d+\*\*")
PHASES = (
    "ArtDesign", "ArtIntegration", "CodeComplete", "CodeCompleteAll", "CodeReviewComment", "CodeReviewHuman",
    "CodeReviewModification", "Coding", "DemandAnalysis", "EnvironmentDoc", "LanguageChoose", "Manual", "Reflection",
    "Test", "TestErrorSummary", "TestModification",
)  # fmt: skip


def autocoderover(folder: Path) -> Iterator[Run]:
    """Yield (task, tools called)."""
    for file in sorted(folder.rglob("tool_call_sequence.json")):
        calls = json.loads(file.read_text(encoding="utf-8"))
        yield file.parent.name, [_known(c["func_name"], ACR_TOOLS) for c in calls]


def autocoderover_roles(folder: Path) -> Iterator[Run]:
    """Yield (task, who made each LLM call)."""
    from traces._acr_calls import read_calls
    from traces.io_autocoderover import LOGS

    for task in sorted({f.parent for name in LOGS for f in folder.rglob(name)}):
        log = next(task / name for name in LOGS if (task / name).exists())
        yield task.name, [c.agent for c in read_calls(log)]


def sweagent(folder: Path) -> Iterator[Run]:
    """Yield (issue, commands)."""
    for file in sorted(folder.rglob("*.traj")):
        actions = [
            step["action"].split() for step in json.loads(file.read_text(encoding="utf-8"))["trajectory"]
        ]
        yield file.stem, [_known(a[0] if a else "", (*SWE_COMMANDS, *SHELL)) for a in actions]


def chatdev(folder: Path) -> Iterator[Run]:
    """Yield (project, phase of each turn); logs without phases are left out."""
    for file in sorted(folder.rglob("*.log")):
        phases = _PHASE.findall(file.read_text(encoding="utf-8", errors="replace"))
        yield file.stem, [_known(p, PHASES) for p in phases]


def magentic(folder: Path) -> Iterator[Run]:
    """Yield (question, who speaks): an orchestrator's thought, its instruction and its end are three of its acts."""
    for file in sorted(folder.rglob("Hand-Crafted/*.json")):
        body = json.loads(file.read_text(encoding="utf-8"))
        speakers = []
        for entry in body["history"]:
            who, _, act = str(entry.get("name") or entry.get("role")).partition(" (")
            act = act.rstrip(")")
            act = (
                "instructs " + _known(act[3:], MAGENTIC)
                if act.startswith("-> ")
                else _known(act, ("thought", ""))
            )
            speakers.append(_known(who, MAGENTIC) + (f" {act}" if act else ""))
        yield str(body["question_ID"]), speakers


_ACR = ("nus-apr/auto-code-rover, results/acr-run-*", "AGPL-3.0 / non-commercial")
KINDS = {
    "autocoderover": (autocoderover, *_ACR),
    "autocoderover_roles": (autocoderover_roles, *_ACR),
    "sweagent": (sweagent, "nus-apr/auto-code-rover, results/swe-agent-results", "MIT (SWE-agent)"),
    "chatdev": (chatdev, "OpenBMB/ChatDev, WareHouse logs", "data CC BY-NC 4.0"),
    "magentic": (magentic, "ag2ai/Agents_Failure_Attribution, Who&When, Hand-Crafted", "MIT"),
}  # fmt: skip


def main(words: list[str]) -> int:
    """Write the file; return the exit status."""
    try:
        if len(words) != 3:
            raise InputError("expected: python -m traces.sequences KIND FOLDER OUT.json")
        kind, folder, out = words[0], Path(words[1]), Path(words[2])
        if kind not in KINDS:
            raise InputError(nearest(kind, KINDS, what="kind of sequences"))
        read, source, licence = KINDS[kind]
        runs = [(task, run) for task, run in read(folder) if run]
        if not runs:
            raise InputError(f"{folder}: no record of kind {kind} in it")
        provenance = {
            "source": source, "licence": licence,
            "command": f"python -m traces.sequences {kind} COPY_OF_THE_SET {out.name}",
            "kept": "order of names from a fixed vocabulary, tasks as hashes; nothing else",
        }  # fmt: skip
        out.write_text(encode(runs, provenance), encoding="utf-8")
    except (InputError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    print(f"{out}: {len(runs)} runs")
    return 0


def _known(name: str, vocabulary: tuple[str, ...]) -> str:
    return name if name in vocabulary else "other"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
