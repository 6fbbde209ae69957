"""Import SWE-agent trajectories (`*.traj`): one workflow a trajectory, one LLM call a step.

The roles are ours: who is in charge of a step is read from the command it issued (`ROLES`), so that the order of
agents, retries included, is the recorded one. Lengths are the recorded texts', in tokens by the trajectory's own
ratio of bytes sent to tokens billed. No text is kept. Trajectories hold no times: tool times are drawn from
quantiles of other records.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import pairwise
from pathlib import Path

from traces import draws
from traces._records import get, get_at_least, head_of, load_json, source_files, wanted
from traces._team import Chat, Team, in_part
from traces._text import Part, identity
from traces.builder import WorkloadBuilder
from traces.errors import InputError, at
from traces.schema import Workload

SOURCE = "nus-apr/auto-code-rover, results/swe-agent-results (GPT-4 SWE-agent on SWE-bench Lite)"
LICENCE = "carrying repository AGPL-3.0 / non-commercial; SWE-agent is MIT; observations quote open source"
SUFFIXES = (".traj",)
TEST_PER_MILLE = 300

ROLES = {
    "navigator": (
        "open", "goto", "scroll_up", "scroll_down", "search_dir", "search_file", "find_file", "find", "ls", "cat",
        "cd", "grep",
    ),
    "editor": ("edit", "create", "mv", "cp", "rm", "sed", "touch"),
    "submitter": ("submit", "exit_cost", "exit_format", "exit_error"),
}  # fmt: skip
OTHER_ROLE = "tester"  # python, pytest, and whatever else was run

# Quantiles of command times in ms, (per mille, ms). SWE-agent v1 commands: p50 140 ms, max 2 s (13 commands).
COMMAND_MS = ((0, 20), (500, 140), (1000, 2000))
# SWE-bench Lite target suites in AutoCodeRover's validation logs (793): p50, p75, p90, p99 and max.
SUITE_MS = ((0, 100), (500, 320), (750, 1000), (900, 5400), (990, 67_000), (1000, 256_000))


def read(
    path: Path,
    *,
    seed: int = 0,
    block_tokens: int = 16,
    context: str = "own",
    part: str = "all",
    only: Path | None = None,
) -> Workload:
    """Return the workload of one trajectory, or of every `*.traj` below a folder.

    seed: of tool times. context: own (every role has a system prompt of the recorded length in front of the common
    transcript) or shared (one conversation, as SWE-agent ran it). part: all, or train or test, which have no issue
    in common. only: import the workflows named in this text file or `.workload`. Workflows are named
    `<folder>/<issue>`. Raises InputError "file: field 'history[3].content' ...".
    """
    if block_tokens < 1:
        raise InputError(f"block_tokens={block_tokens}, expected at least 1")
    names = wanted(only)
    builder = WorkloadBuilder("sweagent", block_tokens)
    skipped: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    issues: set[str] = set()
    kept = 0
    for file in source_files(path, SUFFIXES):
        issue, name = file.stem, f"{file.parent.name}/{file.stem}"
        if names is not None and name not in names:
            skipped["trajectory not asked for"] += 1
        elif not in_part(part, "sweagent", _key(issue), TEST_PER_MILLE):
            skipped[f"trajectory outside part {part}"] += 1
        else:
            trajectory = _read(file)
            if trajectory is None:
                skipped["trajectory without a step"] += 1
                continue
            builder.workflow(name)
            _add(builder, trajectory, _key(name), seed, context)
            steps.update(role for role, _, _ in trajectory.turns)
            issues.add(issue)
            kept += 1
    if not kept:
        raise InputError(f"{path}: no trajectory to import")
    return builder.build(
        {
            "source": SOURCE,
            "licence": LICENCE,
            "format": "sweagent",
            "records": {"trajectories": kept, "issues": len(issues), "steps": dict(sorted(steps.items()))},
            "from_the_data": "order of roles (by command), lengths of system prompt, issue, outputs and observations,"
            " scaled to the billed tokens of each trajectory",
            "from_other_sources": {
                "command times": "SWE-agent v1 (13 commands), p50 and max",
                "suite times": "AutoCodeRover validation logs (793), p50, p75, p90, p99, max",
            },
            "assumed": {
                "context": context,
                "roles": "navigator, editor, submitter by command; tester for all other commands",
            },
            "seed": seed,
            "identity": "system prompt by its text; the rest is private to the trajectory",
            "not_imported": dict(sorted(skipped.items())),
        }
    )


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a file's head, or the first file of a folder, looks like a trajectory."""
    found = head_of(path, head, SUFFIXES).lstrip()
    return found.startswith(b"{") and b'"trajectory"' in found and b'"observation"' in found


class _Trajectory:
    """system: hash and tokens of the system prompt; task: tokens; turns: (role, output tokens, result tokens)."""

    def __init__(self, system: Part, task: int, turns: list[tuple[str, int, int]]) -> None:
        self.system = system
        self.task = task
        self.turns = turns


def _read(path: Path) -> _Trajectory | None:
    record = load_json(path)
    history = get(record, "history", list, path)
    sizes: list[int] = []
    roles: list[str] = []
    for i, message in enumerate(history):
        roles.append(get(message, "role", str, path, f"history[{i}]."))
        sizes.append(len(get(message, "content", str, path, f"history[{i}].").encode()))
    expected = ["system", "user", *["assistant", "user"] * len(roles)][: len(roles)]
    if roles != expected:
        odd = next(i for i, (a, b) in enumerate(zip(roles, expected, strict=True)) if a != b)
        raise InputError(
            f"{at(path, None, f'history[{odd}].role')}: got {roles[odd]!r}, expected {expected[odd]!r}"
        )
    calls = [i for i, role in enumerate(roles) if role == "assistant"]
    if not calls:
        return None
    stats = get(get(record, "info", dict, path), "model_stats", dict, path, "info.")
    billed = get_at_least(stats, "tokens_sent", 1, path, "info.model_stats.")
    sent = sum(sum(sizes[:i]) for i in calls)

    def tokens(size: int) -> int:
        return max(1, size * billed // sent)

    turns = []
    for i in calls:
        action = get(history[i], "action", str, path, f"history[{i}].")
        result = tokens(sizes[i + 1]) if i + 1 < len(sizes) else 0
        turns.append((role_of(action), tokens(sizes[i]), result))
    system = (_key(get(history[0], "content", str, path, "history[0].")), tokens(sizes[0]))
    return _Trajectory(system, tokens(sizes[1]), turns)


def _add(builder: WorkloadBuilder, trajectory: _Trajectory, key: int, seed: int, context: str) -> None:
    text, size = trajectory.system
    team = Team("sweagent", size, context)
    # Prompts that differ in their text, or in the tokens we make of it, are other prompts.
    system = {role: (identity("sweagent", f"system/{role}", text), size) for role in (*ROLES, OTHER_ROLE)}
    chat = Chat(builder, team, key, trajectory.task)
    for turn, (role, output_tokens, result_tokens) in enumerate(trajectory.turns):
        chat.call(role, output_tokens, system)
        if result_tokens:
            quantiles = SUITE_MS if role == OTHER_ROLE else COMMAND_MS
            chat.tool(
                "shell", quantile_ns(quantiles, draws.bits(seed, "sweagent/tool", key, turn)), result_tokens
            )


def role_of(action: str) -> str:
    """Return who issues such a command.

    >>> role_of("edit 3:9"), role_of("python reproduce.py")
    ('editor', 'tester')
    """
    command = (action.split() or [""])[0]
    return next((role for role, commands in ROLES.items() if command in commands), OTHER_ROLE)


def quantile_ns(quantiles: tuple[tuple[int, int], ...], bits: int) -> int:
    """Return a time in ns, interpolated between (per mille, ms) points at 64 random bits."""
    ppm = (bits >> 32) * 1_000_000 >> 32
    for (p0, ms0), (p1, ms1) in pairwise(quantiles):
        if ppm < p1 * 1000:
            return ms0 * 1_000_000 + (ms1 - ms0) * 1000 * (ppm - p0 * 1000) // (p1 - p0)
    raise AssertionError("quantiles end at 1000")


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
