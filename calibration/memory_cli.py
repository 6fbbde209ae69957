"""The command `memory`: where a GPU's memory goes, and how many KV blocks are left."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from calibration import catalog, models
from calibration.memory import (
    EAGLE,
    GIB,
    Beside,
    activation_bytes,
    draft_beside,
    graph_bytes,
    kv_blocks,
    shape_of,
)
from calibration.predict_cli import engine_options
from policies.costs import Profile
from sim.config import EngineConfig
from traces.errors import InputError, nearest


def add_parser(commands: Any) -> None:
    """Add `memory` to the command line."""
    parser = commands.add_parser(
        "memory", help="weights, activations, graphs, draft model, KV blocks of one GPU"
    )
    parser.add_argument("profile", help="a profile's name or file")
    parser.add_argument("--engine", nargs="*", default=[], metavar="KEY=VALUE", help="options of the engine")
    parser.add_argument("--draft", help=f"a draft model's name, or {EAGLE}")
    parser.add_argument("--graphs", type=int, default=0, help="CUDA graphs captured")
    parser.add_argument(
        "--graphs-counted", action="store_true", help="their memory comes off before the pool is sized"
    )
    parser.add_argument("--reported", type=int, help="KV blocks that the engine reported")
    parser.set_defaults(run=_memory)


def _memory(args: argparse.Namespace) -> None:
    profile, engine = catalog.open(args.profile), EngineConfig(**engine_options(args.engine))
    for name, low in (("graphs", 0), ("reported", 1)):
        value = getattr(args, name)
        if value is not None and value < low:
            raise InputError(f"--{name} {value}: expected a whole number of at least {low}")
    print("\n".join(describe(profile, engine, _beside(profile, args), args.reported)))


def _beside(profile: Profile, args: argparse.Namespace) -> Beside:
    found = Beside()
    if args.draft is not None:
        shape = shape_of(profile)
        if args.draft != EAGLE and args.draft not in models.MODELS:
            raise InputError(nearest(args.draft, [EAGLE, *models.MODELS], what="draft"))
        if shape is None:
            raise InputError(f"--draft {args.draft}: the shape of {profile.identity['model']} is not known")
        found = draft_beside(shape, args.draft, int(profile.identity["tp"]))
    return replace(found, graphs=args.graphs, graphs_counted=args.graphs_counted)


def describe(
    profile: Profile, engine: EngineConfig, beside: Beside, reported: int | None = None
) -> list[str]:
    """Return the lines of the command; raises InputError where nothing is left for KV and nothing was reported."""
    tp = int(profile.identity["tp"])
    activations = activation_bytes(shape_of(profile), tp, engine.max_num_seqs, engine.max_num_batched_tokens)
    share = engine.gpu_memory_utilization
    graphs = graph_bytes(profile, beside.graphs)
    where = (
        "inside the budget"
        if beside.graphs_counted
        else "captured after the pool is sized, beyond the budget"
    )
    lines = [
        f"{profile.name}: one GPU of {tp}",
        _line("budget", int(share * profile.gpu_bytes), f"{share:g} x {profile.gpu_bytes / GIB:.2f} GiB"),
        _line("weights", profile.weight_bytes, str(profile.identity["precision"])),
        _line(
            "activations", activations,
            f"max_num_seqs {engine.max_num_seqs}, max_num_batched_tokens {engine.max_num_batched_tokens}",
        ),
    ]  # fmt: skip
    if beside.draft_weight_bytes:
        note = f"and {beside.draft_kv_bytes_per_token / 1024:g} KiB of KV a token"
        lines.append(_line("draft model", beside.draft_weight_bytes, note))
    if beside.graphs:
        lines.append(_line(f"{beside.graphs} graphs", graphs, f"at most; {where}"))
    if reported is not None:
        tokens = reported * engine.block_tokens
        lines.append(
            f"reported: {reported} blocks of {engine.block_tokens} tokens, {tokens} tokens; this is what counts"
        )
    # An engine that started proves more than arithmetic: what it reported is shown beside it, not refused by it.
    try:
        capacity = kv_blocks(profile, engine, beside)
    except InputError:
        if reported is None:
            raise
        return [*lines, "computed: nothing is left for KV by this arithmetic"]
    tokens = capacity.blocks * engine.block_tokens
    lines.append(capacity.source_text)
    lines.append(f"  = {capacity.blocks} blocks of {engine.block_tokens} tokens, {tokens} tokens")
    if reported is not None:
        lines.append(f"  computed is {100 * (capacity.blocks / reported - 1):+.2f} % of reported")
    return lines


def _line(what: str, size_bytes: int, note: str) -> str:
    return f"  {what:<13}{size_bytes / GIB:8.2f} GiB   {note}"
