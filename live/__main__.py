"""The command line of the live hosts: `python -m live COMMAND`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from live.agents import command as agents
from live.vllm.settings import HOST_WRITES, LOAD_BACKS
from traces.errors import InputError


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit status, 2 with one line on stderr where the input is wrong."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args) or 0
    except InputError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def _make_model(args: argparse.Namespace) -> None:
    from live.tiny.model import make_model

    made = make_model(args.directory, steps=0 if args.quick else args.steps, seed=args.seed)
    trained = f"loss {made.loss:.3f} after {made.steps} steps" if made.steps else "untrained"
    print(f"{args.directory}: {made.parameters} parameters, {trained}")


def _compat(args: argparse.Namespace) -> None:
    from live.vllm import compat

    compat.require()
    print(f"vLLM {compat.version()}: the {len(compat.USED)} names and signatures in use are as known")


def _record(args: argparse.Namespace) -> None:
    from live.vllm.record import record

    script = record(args.workload, args.model, args.workflows, args.scale, args.seed)
    script.save(args.out)
    print(f"{args.out}: {len(script.requests)} requests of {script.workflows} workflows")


def _replay(args: argparse.Namespace) -> None:
    from live.script import Script
    from live.vllm.draftsettings import DraftSettings
    from live.vllm.replay import Overlap, replay
    from live.vllm.settings import EvictionSettings

    script = Script.open(args.script)
    options = agents.pairs(args.option, "--option")
    settings = EvictionSettings(
        evictor=args.evictor,
        evictor_options=options,
        predictor=args.predictor,
        agents=script.agents,
        policy_path=str(args.policy_path.resolve()) if args.policy_path else "",
        log_dir=str(args.out.resolve()),
        call_ms_max=args.call_ms_max,
        host_blocks=args.host_blocks,
        host_evictor=args.host_evictor,
        host_write=args.host_write,
        load_back=args.load_back,
        prefetcher=args.prefetcher,
    )
    overlap = None
    if args.at_once > 1:
        overlap = Overlap(args.at_once, max_num_batched_tokens=args.step_tokens)
    drafting = None
    if args.drafter != "none":
        drafting = DraftSettings(
            drafter=args.drafter,
            drafter_options=agents.pairs(args.drafter_option, "--drafter-option"),
            budget=args.budget,
            budget_options=agents.pairs(args.budget_option, "--budget-option"),
            agents=script.agents,
            tokens_max=args.draft_tokens,
            policy_path=settings.policy_path,
            call_ms_max=args.call_ms_max,
            corrupt_every=args.corrupt_every,
        )
    outputs = replay(script, args.model, settings, args.blocks, overlap, drafting)
    print(f"{args.out}: {len(outputs)} requests served, {sum(len(a.tokens) for a in outputs)} tokens")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m live", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    make = commands.add_parser("make-model", help="write a tiny model, trained on generated text")
    make.add_argument("directory", type=Path)
    make.add_argument("--quick", action="store_true", help="leave the weights random")
    make.add_argument("--steps", type=int, default=500)
    make.add_argument("--seed", type=int, default=0)
    make.set_defaults(run=_make_model)

    compat = commands.add_parser("compat", help="check the installed vLLM against what the host uses")
    compat.set_defaults(run=_compat)

    record = commands.add_parser(
        "record", help="make a script of requests from a workload, with a model's answers"
    )
    record.add_argument("workload", help="an embedded workload")
    record.add_argument("--model", type=Path, required=True)
    record.add_argument("--out", type=Path, required=True, metavar="SCRIPT")
    record.add_argument("--workflows", type=int, default=12)
    record.add_argument("--scale", type=int, default=16, help="tokens of the workload to one of the script")
    record.add_argument("--seed", type=int, default=0)
    record.set_defaults(run=_record)

    replay = commands.add_parser("replay", help="serve a script in vLLM under an evictor")
    replay.add_argument("script", type=Path)
    replay.add_argument("--model", type=Path, required=True)
    replay.add_argument("--evictor", default="lru", help="a policy's name, or stock")
    replay.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the evictor")
    replay.add_argument("--predictor", default="none")
    replay.add_argument("--policy-path", type=Path)
    replay.add_argument("--blocks", type=int, required=True, help="KV blocks of the pool")
    replay.add_argument("--call-ms-max", type=float, default=0.0)
    replay.add_argument("--drafter", default="none")
    replay.add_argument("--drafter-option", action="append", default=[], metavar="NAME=VALUE")
    replay.add_argument("--budget", default="fixed_k")
    replay.add_argument("--budget-option", action="append", default=[], metavar="NAME=VALUE")
    replay.add_argument("--draft-tokens", type=int, default=8, help="most tokens drafted a request and step")
    replay.add_argument("--corrupt-every", type=int, default=0, help="replace every so many drafted tokens")
    replay.add_argument("--at-once", type=int, default=1, help="workflows whose requests overlap")
    replay.add_argument("--step-tokens", type=int, default=2048, help="most tokens of a step, with --at-once")
    replay.add_argument("--host-blocks", type=int, default=0, help="KV blocks of host memory behind the pool")
    replay.add_argument("--host-evictor", default="lru")
    replay.add_argument("--host-write", default="write_through", help=f"one of {', '.join(HOST_WRITES)}")
    replay.add_argument("--load-back", default="always", help=f"one of {', '.join(LOAD_BACKS)}")
    replay.add_argument("--prefetcher", default="none")
    replay.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="tables and outputs of the run"
    )
    replay.set_defaults(run=_replay)

    agents.add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
