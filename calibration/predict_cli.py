"""`python -m calibration predict`: one case, a workload, or a table of cases."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from calibration import catalog
from calibration.predict import Figures, Prediction, predict, predict_closed_loop
from calibration.predict_client import ClosedLoop
from calibration.predict_serving import serving
from calibration.predict_table import FIELDS, Settings, predict_table
from sim.config import EngineConfig, LoadConfig
from traces import io_csv
from traces.errors import InputError, nearest

_KINDS = {f.name: str(f.type) for f in fields(EngineConfig)}


def add_parser(commands: Any) -> None:
    """Add the subcommand to an argparse collection."""
    parser = commands.add_parser(
        "predict",
        help="predict TTFT, TPOT, ITL, E2E and throughput of a benchmark",
        description="Either --rows, or --profile with --workload (open loop) or with --isl --osl --concurrency.",
    )
    parser.add_argument("--profile", help="a profile's name or file")
    parser.add_argument("--workload", type=Path, help="CSV with arrival_s, prompt_tokens, output_tokens")
    parser.add_argument("--rows", type=Path, help="CSV of cases: model, system, precision, tp, isl, osl, ...")
    parser.add_argument("--isl", type=int, help="prompt tokens of a closed loop")
    parser.add_argument("--osl", type=int, help="output tokens of a closed loop")
    parser.add_argument("--concurrency", type=int, help="requests in flight (with a workload: closed loop)")
    parser.add_argument("--rounds", type=int, default=10, help="requests a slot sends (default 10)")
    parser.add_argument(
        "--spread", type=float, default=0.5, help="output lengths within ± this share of --osl (default 0.5)"
    )
    parser.add_argument(
        "--habit", default="auto", help="--rows: how benchmark and engine were run: auto, equal, mixed"
    )
    parser.add_argument(
        "--scheduling", default="profile", help="--profile: profile (its prices as they are), sync, async"
    )
    parser.add_argument("--engine", nargs="*", default=[], metavar="KEY=VALUE", help="options of the engine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print the prediction(s)."""
    engine = engine_options(args.engine)
    spread = round(args.spread * 1000)
    if args.rows is not None:
        if args.profile or args.workload:
            raise InputError("predict: --rows names a profile in every row: leave out --profile, --workload")
        answers = predict_table(args.rows, Settings(args.rounds, args.habit, tuple(engine.items())))
        print(json.dumps(answers, indent=1) if args.json else _table(answers))
        return
    if not args.profile:
        raise InputError(
            "predict: give --rows FILE, or --profile with --workload or --isl --osl --concurrency"
        )
    priced, how = catalog.open(args.profile), serving(args.scheduling)
    config = EngineConfig(**engine)
    if args.workload is not None:
        if args.isl or args.osl:
            raise InputError("predict: --isl and --osl are lengths of a closed loop without --workload")
        load = LoadConfig(loop="open")
        if args.concurrency:
            load = LoadConfig(loop="closed", concurrency=args.concurrency)
        seen = predict(priced, io_csv.read(args.workload), config, load, seed=args.seed, how=how)
    else:
        if not (args.isl and args.osl and args.concurrency):
            raise InputError("predict: without --workload, --isl, --osl and --concurrency are all needed")
        client = ClosedLoop(args.isl, args.osl, args.concurrency, args.rounds, spread)
        alone = replace(config, prefix_cache="none")
        seen = predict_closed_loop(priced, client, alone, seed=args.seed, itl=True, how=how)
    print(json.dumps(seen.to_json(), indent=1) if args.json else describe(seen))


def engine_options(words: list[str]) -> dict[str, Any]:
    """Return fields of EngineConfig from `key=value` words (`engine.key=value` too); raises InputError."""
    out: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        key = key.removeprefix("engine.").replace("-", "_")
        if not equals or key not in _KINDS:
            raise InputError(nearest(key, _KINDS, what="engine option") + f" (given: {word})")
        out[key] = _value(key, text, word)
    return out


def describe(seen: Prediction) -> str:
    """Return the prediction as lines of text."""
    rows = [("TTFT", seen.ttft_ms), ("TPOT", seen.tpot_ms), ("ITL", seen.itl_ms), ("E2E", seen.e2e_ms)]
    lines = [f"{seen.profile}: {seen.completed} of {seen.requests} requests in {seen.duration_s:.1f} s"]
    lines.append(f"{'ms':6}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}")
    lines += [f"{name:6}{_cells(f)}" for name, f in rows if f is not None]
    lines.append(f"{seen.throughput_tok_s:.1f} tokens/s, {seen.requests_per_s:.2f} requests/s")
    if seen.rejected:
        lines.append(f"{seen.rejected} requests rejected: too long for the model or the KV pool")
    return "\n".join([*lines, *(f"note: {n}" for n in seen.notes)])


def _cells(f: Figures) -> str:
    return "".join(f"{'-' if x is None else f'{x:.2f}':>10}" for x in (f.mean, f.p50, f.p90, f.p99))


def _table(answers: list[dict[str, Any]]) -> str:
    lines = ["".join(f"{name:>18}" for name in FIELDS)]
    for answer in answers:
        if "error" in answer:
            lines.append(f"{'-':>18}  {answer['error']}")
        else:
            lines.append("".join(f"{answer[name]:>18.2f}" for name in FIELDS))
    return "\n".join(lines)


def _value(key: str, text: str, word: str) -> Any:
    kind = _KINDS[key]
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise InputError(f"{word}: expected true or false")
        return text.lower() == "true"
    if "None" in kind and text.lower() in ("none", "null"):
        return None
    try:
        return int(text) if kind.startswith("int") else float(text) if kind == "float" else text
    except ValueError:
        raise InputError(f"{word}: expected a {'whole ' if kind.startswith('int') else ''}number") from None
