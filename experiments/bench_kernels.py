"""`bench kernels`: what a CPU can tell of the kernels, interpreted and compiled, as one document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from traces.errors import InputError


def bench(words: Sequence[str], *, as_json: bool) -> int:
    """Interpret and compile every kernel in processes of their own; print; return 1 where one is at fault.

    words: `op=NAME,...` and `arch=SM,...`, as for `python -m kernels check`.
    """
    missing = [name for name in ("torch", "triton") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"bench kernels: {', '.join(missing)} not installed; pip install 'foreserve[kernels]'"
        )
    for word in words:
        if word.partition("=")[0] not in ("op", "arch"):
            raise InputError(f"bench kernels: unknown option {word!r}; allowed: op=NAME,... arch=SM,...")
    interpreted, wrong = _run("interpret", [], interpret=True)
    compiled, faults = _run("check", [f"--{w}" for w in words], interpret=False)
    if as_json:
        print(json.dumps({"interpreted": interpreted, "compiled": compiled}, indent=1))
    else:
        for row in interpreted["kernels"]:
            print(
                f"interpreted {row['kernel']:12s} {row['dtype']:9s} {row['error']:9.2e} {row['ms']:8.1f} ms"
            )
        for row in compiled["kernels"]:
            print(
                f"compiled    {row['op']:12s} {row['variant']:9s} sm_{row['arch']} registers {row['registers']} "
                f"spills {row['spill_bytes']} {'; '.join(row['faults']) or 'ok'}"
            )
        print(f"seconds: interpreter {interpreted['seconds']}, compiler {compiled['seconds']}")
    return max(wrong, faults)


def _run(command: str, words: Sequence[str], *, interpret: bool) -> tuple[dict[str, Any], int]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "kernels", command, *words, "--json"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1) or not done.stdout.startswith("{"):
        said = done.stderr.strip().splitlines() or ["no output"]
        raise InputError(f"bench kernels: {command}: {said[-1]}")
    body: dict[str, Any] = json.loads(done.stdout)
    return {"seconds": round(time.perf_counter() - began, 1), **body}, done.returncode
