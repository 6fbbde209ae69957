"""`python -m traces generate`: options to a workload."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces import arrivals, formats, lengths, synthetic
from traces.errors import InputError
from traces.schema import StageKind, Workload

# Options that only some workloads have, with their defaults. One that has no say is refused, not ignored.
_OF_ARRIVALS: dict[str, dict[str, float]] = {
    "poisson": {},
    "gamma": {"cv": 2.0},
    "diurnal": {"amplitude": 0.8, "period_s": 86_400.0},
}
_OF_SESSIONS: dict[str, Any] = {
    "turns": "lognormal:5:0.7:1:50",
    "think_ms": "lognormal:10000:1.0:0:600000",
    "system_tokens": 1024,
    "system_prompts": 1,
    "block_tokens": 16,
    "repeats": None,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `generate`. Mutates the parser."""
    parser.description = f"Make a seeded synthetic workload. Distributions (DIST): {lengths.FORMS}."
    add = parser.add_argument
    add("out", type=Path, metavar="OUT", help="suffix .workload or .csv")
    add("--requests", type=int, metavar="N", help="independent requests (default: 10000)")
    add("--sessions", type=int, metavar="N", help="multi-turn sessions instead, prompts sharing prefixes")
    add("--seed", type=int, default=0)
    add("--arrivals", choices=tuple(_OF_ARRIVALS), default="poisson")
    add("--rate", type=float, default=4.0, metavar="PER_S", help="requests or sessions a second")
    add("--cv", type=float, help="gamma: variation of the gaps; 1 is Poisson, more is bursty (default: 2)")
    add("--amplitude", type=float, help="diurnal: swing of the rate, 0 to 1 (default: 0.8)")
    add("--period-s", type=float, help="diurnal: length of a day (default: 86400)")
    add(
        "--prompt",
        default="lognormal:512:1.0:16:4096",
        metavar="DIST",
        help="prompt, or user message, tokens",
    )
    add("--output", default="lognormal:160:0.9:4:1024", metavar="DIST", help="output tokens")
    add("--turns", metavar="DIST", help=f"sessions: turns of one (default: {_OF_SESSIONS['turns']})")
    add("--think-ms", metavar="DIST", help=f"sessions: think time (default: {_OF_SESSIONS['think_ms']})")
    add("--system-tokens", type=int, help="sessions: tokens of a system prompt (default: 1024)")
    add("--system-prompts", type=int, help="sessions: number of system prompts (default: 1)")
    add("--repeats", type=float, help="sessions: give outputs token ids, this share of them written before")
    add("--block-tokens", type=int, help="sessions: tokens a unit of prefix identity covers (default: 16)")


def generate(args: argparse.Namespace) -> Workload:
    """Return the workload the options describe; InputError names the option."""
    if args.requests is not None and args.sessions is not None:
        raise InputError("--requests and --sessions: give one of them")
    wave = _options(args, _OF_ARRIVALS[args.arrivals])
    for kind, others in _OF_ARRIVALS.items():
        if kind != args.arrivals:
            _refuse(args, others, f"--arrivals {kind}")
    if args.sessions is None:
        _refuse(args, _OF_SESSIONS, "--sessions")
    prompt, output = _lengths(args.prompt, "--prompt", 1), _lengths(args.output, "--output", 0)
    stated = {"arrivals": args.arrivals, "rate": args.rate, **wave}
    stated |= {"prompt": _without_folder(args.prompt), "output": _without_folder(args.output)}
    name = args.out.stem
    if args.sessions is None:
        count = 10_000 if args.requests is None else args.requests
        return synthetic.requests(name, _arrival_ns(args, count, wave), prompt, output, args.seed, stated)
    own = _options(args, _OF_SESSIONS)
    return synthetic.sessions(
        name,
        _arrival_ns(args, args.sessions, wave),
        turns=_lengths(own["turns"], "--turns", 1),
        user=prompt,
        output=output,
        think_ms=_lengths(own["think_ms"], "--think-ms", 0),
        system_tokens=own["system_tokens"],
        system_prompts=own["system_prompts"],
        block_tokens=own["block_tokens"],
        repeats=own["repeats"],
        seed=args.seed,
        options={**stated, **own},
    )


def _options(args: argparse.Namespace, defaults: dict[str, Any]) -> dict[str, Any]:
    given = {name: getattr(args, name) for name in defaults}
    return {name: defaults[name] if value is None else value for name, value in given.items()}


def _refuse(args: argparse.Namespace, options: dict[str, Any], owner: str) -> None:
    for name in options:
        if getattr(args, name) is not None:
            raise InputError(f"--{name.replace('_', '-')}: has a say with {owner} only")


def _without_folder(spec: str) -> str:
    kind, _, file = spec.partition(":")
    return f"{kind}:{Path(file).name}" if kind == "empirical" else spec


def _arrival_ns(args: argparse.Namespace, count: int, wave: dict[str, Any]) -> NDArray[np.int64]:
    if args.arrivals == "gamma":
        return arrivals.gamma(count, args.rate, wave["cv"], args.seed)
    if args.arrivals == "diurnal":
        return arrivals.diurnal(count, args.rate, wave["amplitude"], wave["period_s"], args.seed)
    return arrivals.poisson(count, args.rate, args.seed)


def _lengths(spec: str, option: str, low: int) -> lengths.Lengths:
    kind, _, file = spec.partition(":")
    if kind != "empirical":
        return lengths.parse(spec, option, low)
    if option not in ("--prompt", "--output"):
        raise InputError(f"{option}: 'empirical' gives prompt and output tokens only")
    workload = formats.load(file)
    llm = workload.stage_kind == StageKind.LLM
    column = workload.prompt_tokens if option == "--prompt" else workload.output_tokens
    if not llm.any():
        raise InputError(f"{option}: {file} has no request to take lengths from")
    return lengths.Empirical(column[llm].astype(np.int64))
