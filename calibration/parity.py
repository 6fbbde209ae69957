"""Do the simulator and vLLM decide alike? One script of requests, one policy object, both hosts' logs compared.

The simulator runs in this process; the live run is a directory that `python -m live replay` wrote. What is compared
is exact: the contents that left the cache, in order, the hits of every request, what was loaded from the host tier and
prefetched, and what the scheduler put into every step, whether requests come one by one or overlap. Times are not.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from calibration.parity_live import about_run, answered, drafting_of, live_decisions, load_of
from calibration.parity_sim import given_options, simulated_decisions
from live.script import Content, Script
from policies.api import Evictor, Predictor
from policies.registry import load


@dataclass(frozen=True)
class Parity:
    """Outcome of one comparison. `first_difference`: place of the first other victim, -1 when there is none."""

    evictor: str
    victims: int
    hit_tokens: int
    first_difference: int
    hits_equal: bool
    host_hit_tokens: int = 0
    host_hits_equal: bool = True
    prefetched: int = 0
    prefetched_equal: bool = True
    steps: int = 0
    steps_equal: bool = True
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether both hosts decided alike throughout."""
        same = self.hits_equal and self.host_hits_equal and self.prefetched_equal and self.steps_equal
        return self.first_difference < 0 and same and not self.notes


def compare(script: Script, live: Path) -> Parity:
    """Simulate `script` under the policies that the live run in `live` names, and compare.

    The engine's own order ("stock") is compared with lru. Raises InputError for a directory that holds no live run, or
    one of another script.
    """
    about = about_run(live)
    stock = about["evictor"] == "stock"
    evictor = cast(
        "Evictor[Any]",
        load(
            "evictors",
            "lru" if stock else about["evictor"],
            {} if stock else given_options(about["evictor_options"]),
        ),
    )
    predictor = cast(
        "Predictor[Any]", load("predictors", about["predictor"], given_options(about["predictor_options"]))
    )
    script, sent, drafting = answered(script, live), load_of(live), drafting_of(live)
    there = live_decisions(script, live)
    here = simulated_decisions(
        script, about["kv_blocks"], evictor, predictor, about.get("host_tier"), sent, drafting
    )
    notes = []
    for key, what in (
        ("dropped", "the policy was dropped"),
        ("predictor_dropped", "the predictor was dropped"),
        ("host_failed", "the host failed"),
    ):
        if about[key]:
            notes.append(f"{what}: {about[key]}")
    tier = about.get("host_tier", {})
    for key, what in (("corrupt", "slots that lied"), ("evictor_dropped", "the host's evictor was dropped")):
        if tier.get(key):
            notes.append(f"{what}: {tier[key]}")
    for key in ("drafter_dropped", "budget_dropped", "host_failed"):
        if drafting is not None and drafting[key]:
            notes.append(f"drafting, {key}: {drafting[key]}")
    if about["duplicates"]:
        notes.append(f"{about['duplicates']} blocks computed twice: parity is exact without them only")
    return Parity(
        about["evictor"],
        len(here.victims),
        sum(here.hit_tokens),
        _first_difference(here.victims, there.victims),
        here.hit_tokens == there.hit_tokens,
        sum(here.host_hit_tokens),
        here.host_hit_tokens == there.host_hit_tokens,
        len(here.prefetched),
        here.prefetched == there.prefetched,
        len(here.steps),
        here.steps == there.steps or not there.steps,
        tuple(notes),
    )


def add_parser(commands: Any) -> None:
    """Add `parity` to the command line."""
    parser = commands.add_parser("parity", help="compare decisions of vLLM with the simulator's")
    parser.add_argument("script", type=Path, help="what `python -m live record` wrote")
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="what `python -m live replay` wrote"
    )
    parser.set_defaults(run=_parity)


def _parity(args: argparse.Namespace) -> int:
    script = Script.open(args.script)
    outcomes = [(run, compare(script, run)) for run in args.runs]
    for run, o in outcomes:
        said = "equal" if o.equal else "; ".join(_differences(o))
        print(f"{run}: {o.evictor}: {o.victims} victims, {o.hit_tokens} hit tokens in the simulator: {said}")
    return 0 if all(o.equal for _, o in outcomes) else 1


def _differences(o: Parity) -> list[str]:
    out = [f"victim {o.first_difference} is another"] if o.first_difference >= 0 else []
    out += [] if o.hits_equal else ["other hits"]
    out += [] if o.host_hits_equal else ["other loads from the host"]
    out += [] if o.prefetched_equal else ["other prefetches"]
    out += [] if o.steps_equal else ["other steps"]
    return out + list(o.notes)


def _first_difference(here: Sequence[Content], there: Sequence[Content]) -> int:
    for i, (a, b) in enumerate(zip(here, there, strict=False)):
        if a != b:
            return i
    return -1 if len(here) == len(there) else min(len(here), len(there))
