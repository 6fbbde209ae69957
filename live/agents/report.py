"""A run of the workflow host as a table for people, from what it wrote."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np

from live.agents.clock import NS_PER_S
from traces.runlog import read_run


def printed(directory: Path) -> str:
    """Return the table of a run."""
    log = read_run(directory)
    about = json.loads((directory / "live.json").read_text(encoding="utf-8"))
    found = about["outcome"]
    started, finished = log.column("workflows", "started_ns"), log.column("workflows", "finished_ns")
    latency_s = (finished - started)[finished >= 0] / NS_PER_S
    fates = Counter(log.table("fills", ("fate",))["fate"].to_pylist())
    actions = Counter(log.table("decisions", ("action",))["action"].to_pylist())
    rows = [
        ("policies", ", ".join(about["policies"].values())),
        (
            "workflows",
            f"{found['completed']} of {found['workflows']} finished, {len(found['failures'])} failed"
            + (f", {found['not_begun']} not begun" if found["not_begun"] else ""),
        ),
        ("time", f"{found['seconds']:.1f} s"),
    ]
    if len(latency_s):
        p50, p99 = np.percentile(latency_s, [50, 99])
        rows.append(("workflow latency", f"mean {latency_s.mean():.2f} s, p50 {p50:.2f} s, p99 {p99:.2f} s"))
    rows += [
        (
            "output tokens",
            f"{found['output_tokens']} canonical, {found['fill_output_tokens']} of fills that were not cancelled",
        ),
        ("fills", f"{found['fills']}" + (f"; of their stages {_counted(fates)}" if fates else "")),
        ("served", f"{actions['promoted']} stages by fills, {actions['served']} by earlier results"),
        (
            "unsafe splices",
            f"{found['unsafe']} (of tools, which can be asked again; models cannot)",
        ),
    ]
    if not found["polls"]:
        rows.append(
            ("note", "the server has no metrics of load that are known here: only own requests were seen")
        )
    rows += [("fills failed", f"{n}: {said}") for said, n in list(found["fill_failures"].items())[:3]]
    failed = list(found["failures"].items())
    rows += [("failed", f"workflow {w}: {reason}") for w, reason in failed[:10]]
    if len(failed) > 10:
        rows.append(("", f"and {len(failed) - 10} more (live.json)"))
    if found["trouble"]:
        rows.append(("not stored", found["trouble"]))
    if found["broken"]:
        rows.append(
            ("left behind", f"the controller raised {found['broken']}; every stage was executed since")
        )
    if found["stopped"]:
        rows.append(("stopped", "by the user; what had finished is in the tables"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in [*rows, ("run", str(directory))])


def _counted(fates: Counter[str]) -> str:
    return ", ".join(f"{n} {fate}" for fate, n in sorted(fates.items(), key=lambda x: (-x[1], x[0])))
