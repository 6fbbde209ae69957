"""How fast are runs that draft simulated? The same requests with each kind of drafter, one core, the run log on.

    python -m experiments bench speculation [requests=1000] [output_tokens=500] [concurrency=256]

Made-up sessions of four requests whose outputs repeat themselves in part, so that what looks history up finds
something; `concurrency` sessions run at a time. Times are the CPU's: what else runs on the machine counts little.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.bench import measure
from traces import arrivals, lengths, store, synthetic
from traces.errors import InputError, nearest
from traces.schema import Workload

PROFILE = "A100x1--Qwen3-8B--bf16--vllm"
METHODS = (
    ("none", "none"),
    ("ngram", "fixed_k(k=5)"),
    ("suffix", "fixed_k(k=32)"),
    ("structured", "redundancy"),
    ("eagle3", "fixed_k(k=3)"),
)
TURNS, REPEATS = 4, 0.3


def bench(words: Sequence[str], *, as_json: bool) -> int:
    """Simulate once with each drafter and print what it took; return the exit status."""
    sizes = {"requests": 1000, "output_tokens": 500, "concurrency": 256}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in sizes or not equals:
            raise InputError(nearest(name, sizes, what="option of bench speculation"))
        if not value.isdecimal() or int(value) < 1:
            raise InputError(f"{name}={value}: expected at least 1")
        sizes[name] = int(value)
    if sizes["requests"] % TURNS:
        raise InputError(
            f"requests={sizes['requests']}: expected a multiple of {TURNS}, the requests of a session"
        )
    found = compare(**sizes)
    if as_json:
        print(json.dumps(sizes | {"methods": found}, indent=1))
        return 0
    said = "{requests:,} requests of {output_tokens:,} output tokens, {concurrency} at a time".format(**sizes)
    print(f"{said:<56}{'CPU s':>9}{'requests/s':>12}{'tokens/s':>12}{'steps':>9}{'drafting':>10}")
    for name, m in found.items():
        print(
            f"{name:<56}{m['cpu_s']:>9.2f}{m['requests_per_cpu_s']:>12,.0f}{m['tokens_per_cpu_s']:>12,.0f}"
            f"{m['steps']:>9,}{m['drafting_steps']:>10,}"
        )
    return 0


def compare(requests: int, output_tokens: int, concurrency: int) -> dict[str, dict[str, Any]]:
    """Return {"drafter, budget": {"cpu_s", "requests_per_cpu_s", "tokens_per_cpu_s", "steps", "drafting_steps", ...}}.

    Rates are requests and output tokens simulated per second of CPU, the log written and closed. Each drafter has run
    on a small workload before: compiling is not timed.
    """
    out: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="foreserve-bench-") as directory:
        paths = []
        for name, n, tokens in (("warm", 2 * TURNS, 40), ("timed", requests, output_tokens)):
            paths.append(Path(directory) / f"{name}{store.SUFFIX}")
            store.save(workload(name, n, tokens), paths[-1])
        for drafter, budget in METHODS:
            words = [f"drafter={drafter}", f"budget={budget}", f"profile={PROFILE}", "load.loop=closed"]
            words.append(f"load.concurrency={concurrency}")
            measure(str(paths[0]), [*words, "load.workflows=2"])
            m = measure(str(paths[1]), [*words, f"load.workflows={requests // TURNS}"])
            if (m["requests"], m["completed"]) != (requests, requests // TURNS):
                raise InputError(
                    f"bench speculation: {m['completed']} of {requests // TURNS} sessions completed"
                )
            out[drafter if drafter == "none" else f"{drafter}, {budget}"] = {
                "cpu_s": m["cpu_s"],
                "requests_per_cpu_s": round(requests / m["cpu_s"], 1),
                "tokens_per_cpu_s": round(requests * output_tokens / m["cpu_s"], 1),
                "steps": m["steps"],
                "drafting_steps": m["drafting_steps"],
                "simulated_s": m["simulated_s"],
                "peak_rss_mb": m["peak_rss_mb"],
            }
    return out


def workload(name: str, requests: int, output_tokens: int) -> Workload:
    """Return sessions of four requests: prompts of 64 new words each, outputs with token ids."""
    return synthetic.sessions(
        name,
        arrivals.poisson(requests // TURNS, 4.0, 0),
        turns=lengths.Fixed(TURNS),
        user=lengths.Fixed(64),
        output=lengths.Fixed(output_tokens),
        think_ms=lengths.Fixed(0),
        system_tokens=0,
        repeats=REPEATS,
    )
