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

# kind of arrivals: the options that only it has
_ARRIVALS: dict[str, tuple[str, ...]] = {
    "poisson": (),
    "gamma": ("cv",),
    "diurnal": ("amplitude", "period_s"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `generate`. Mutates the parser."""
    parser.description = f"Make a seeded synthetic workload. Distributions: {lengths.FORMS}."
    add = parser.add_argument
    add("out", type=Path, metavar="OUT", help="suffix .workload or .csv")
    add("--requests", type=int, metavar="N", help="independent requests (default: 10000)")
    add("--sessions", type=int, metavar="N", help="multi-turn sessions instead, prompts sharing prefixes")
    add("--seed", type=int, default=0)
    add("--arrivals", choices=tuple(_ARRIVALS), default="poisson")
    add("--rate", type=float, default=4.0, metavar="PER_S", help="requests or sessions a second")
    add("--cv", type=float, default=1.0, help="gamma: variation of the gaps; 1 is Poisson, more is bursty")
    add("--amplitude", type=float, default=0.8, help="diurnal: swing of the rate, 0 to 1")
    add("--period-s", type=float, default=86400.0, help="diurnal: length of a day")
    add(
        "--prompt",
        default="lognormal:512:1.0:16:4096",
        metavar="DIST",
        help="prompt, or user message, tokens",
    )
    add("--output", default="lognormal:160:0.9:4:1024", metavar="DIST", help="output tokens")
    add("--turns", default="lognormal:5:0.7:1:50", metavar="DIST", help="sessions: turns of one")
    add(
        "--think-ms",
        default="lognormal:10000:1.0:0:600000",
        metavar="DIST",
        help="sessions: time between turns",
    )
    add("--system-tokens", type=int, default=1024, help="sessions: tokens of a system prompt")
    add("--system-prompts", type=int, default=1, help="sessions: number of system prompts")
    add("--block-tokens", type=int, default=16, help="sessions: tokens a unit of prefix identity covers")


def generate(args: argparse.Namespace) -> Workload:
    """Return the workload the options describe; InputError names the option."""
    if args.requests is not None and args.sessions is not None:
        raise InputError("--requests and --sessions: give one of them")
    count = (
        args.sessions if args.sessions is not None else args.requests if args.requests is not None else 10_000
    )
    prompt, output = _lengths(args.prompt, "--prompt", 1), _lengths(args.output, "--output", 0)
    stated = _stated(args)
    arrival_ns = _arrival_ns(args, count)
    name = args.out.stem
    if args.sessions is None:
        return synthetic.requests(name, arrival_ns, prompt, output, args.seed, stated)
    return synthetic.sessions(
        name,
        arrival_ns,
        turns=_lengths(args.turns, "--turns", 1),
        user=prompt,
        output=output,
        think_ms=_lengths(args.think_ms, "--think-ms", 0),
        system_tokens=args.system_tokens,
        system_prompts=args.system_prompts,
        block_tokens=args.block_tokens,
        seed=args.seed,
        options=stated,
    )


def _stated(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that had a say, files by their name without the folder."""
    used = ["requests", "arrivals", "rate", "prompt", "output", *_ARRIVALS[args.arrivals]]
    if args.sessions is not None:
        used += ["sessions", "turns", "think_ms", "system_tokens", "system_prompts", "block_tokens"]
    out = {k: v for k, v in vars(args).items() if k in used and v is not None}
    for name in ("prompt", "output"):
        kind, _, file = out[name].partition(":")
        if kind == "empirical":
            out[name] = f"{kind}:{Path(file).name}"
    return out


def _arrival_ns(args: argparse.Namespace, count: int) -> NDArray[np.int64]:
    if args.arrivals == "gamma":
        return arrivals.gamma(count, args.rate, args.cv, args.seed)
    if args.arrivals == "diurnal":
        return arrivals.diurnal(count, args.rate, args.amplitude, args.period_s, args.seed)
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
    return lengths.Empirical(column[llm].astype(np.int64))
