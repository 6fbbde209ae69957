"""`python -m live agents WORKLOAD --server URL --out DIR`: the command line of the workflow host."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from policies._options import build
from policies.branching import BranchingConfig
from traces.errors import InputError

_POLICIES = ("gate", "candidate", "reuse")


def add_parser(commands: Any) -> None:
    """Add the command to the parser of `python -m live`."""
    parser = commands.add_parser(
        "agents",
        help="run a workload's workflows against a server (OpenAI API)",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("workload", help="an embedded workload with branches, or a file of one")
    parser.add_argument("--server", required=True, metavar="URL")
    parser.add_argument("--model", default="", help="its name on the server; empty: the only one")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="tables, values and journal of the run"
    )
    parser.add_argument("--workflows", type=int, default=0, help="drawn from the workload; 0: all")
    parser.add_argument("--concurrency", type=int, default=4, help="workflows at once")
    parser.add_argument(
        "--scale", type=float, default=16.0, help="tokens of the workload to a word of a prompt"
    )
    parser.add_argument("--output-scale", type=float, default=0.0, help="of answers; 0: as --scale")
    parser.add_argument(
        "--time-scale", type=float, default=1.0, help="factor on the times of tools and waits"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all draws")
    for name in _POLICIES:
        off = "never" if name == "gate" else "none"
        parser.add_argument(f"--{name}", default=off, help="a policy's name (python -m experiments list)")
        parser.add_argument(
            f"--{name}-option", action="append", default=[], metavar="NAME=VALUE", help=f"of the {name}"
        )
    parser.add_argument(
        "--branching", action="append", default=[], metavar="NAME=VALUE", help="of the controller"
    )
    parser.add_argument("--profile", type=Path, help="of the server's engine, for gates that price")
    parser.add_argument("--store", type=Path, metavar="FILE", help="results that outlive the run (SQLite)")
    parser.add_argument("--slots", type=int, default=8, help="sequences that the server runs at once")
    parser.add_argument("--kv-tokens", type=int, default=1 << 20, help="KV tokens that it holds")
    parser.add_argument("--signals", action="store_true", help="name workflow, agent and stage in vllm_xargs")
    parser.add_argument("--retries", type=int, default=3, help="further tries of a canonical request")
    parser.add_argument("--deadline-s", type=float, default=300.0, help="for all tries of one")
    parser.add_argument("--policy-path", type=Path, help="folder of your own policies")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    try:
        from live.agents.session import run
    except ModuleNotFoundError as e:
        if e.name != "aiohttp":
            raise
        raise InputError("the workflow host needs aiohttp: pip install 'foreserve[agents]'") from None
    from live.agents.report import printed
    from live.agents.server import Patience
    from live.agents.settings import AgentSettings

    policies: dict[str, Any] = {name: getattr(args, name) for name in _POLICIES}
    policies |= {f"{n}_options": pairs(getattr(args, f"{n}_option"), f"--{n}-option") for n in _POLICIES}
    branching = {"priority": "low", **pairs(args.branching, "--branching")}
    settings = AgentSettings(
        workload=args.workload, server=args.server, model=args.model, workflows=args.workflows,
        concurrency=args.concurrency, scale=args.scale, output_scale=args.output_scale,
        time_scale=args.time_scale, seed=args.seed, **policies,
        branching=build(BranchingConfig, branching, "--branching", "branching"), profile=args.profile,
        store=args.store, slots=args.slots, kv_tokens=args.kv_tokens, signals=args.signals,
        patience=Patience(retries=args.retries, deadline_s=args.deadline_s),
        policy_path=args.policy_path.resolve() if args.policy_path else None,
    )  # fmt: skip

    def progress(done: int, total: int) -> None:
        if sys.stderr.isatty() or done == total or done % max(total // 10, 1) == 0:
            end = "\r" if sys.stderr.isatty() and done < total else "\n"
            print(f"{done}/{total} workflows", end=end, file=sys.stderr, flush=True)

    outcome = run(settings, args.out, progress)
    print(printed(args.out))
    if outcome.stopped:
        return 130
    return 1 if outcome.failures or outcome.broken else 0


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """Return NAME=VALUE texts as a dict; InputError for one without a name."""
    out: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text}: expected NAME=VALUE")
        out[name] = value
    return out
