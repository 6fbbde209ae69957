"""`python -m experiments reproduce FAMILY [--quick]`: run what a paper reports, and say what held.

    python -m experiments reproduce pbkv --quick
    python -m experiments reproduce pbkv seeds=20 only=R46,R53 store=runs

Runs go through the run store: what is there is not run again, so that an interrupted card goes on where it stopped. The
card is written as JSON and as a page, and printed; what failed stands beside what held. Exit status 0 says that the
card is complete, not that everything was reproduced; 1 that runs failed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from experiments.build import build, check_host
from experiments.cards import render
from experiments.cards.family import Family, family, names
from experiments.cards.results import Results
from experiments.job import execute
from experiments.run import run_missing, say
from experiments.store import Store, explained, write_whole
from experiments.targets import targets
from traces.errors import InputError, nearest


@dataclass(frozen=True)
class Asked:
    """The words of the command. only: ids of targets, None for all; extra: options of every run."""

    quick: bool
    seeds: int | None
    only: tuple[str, ...] | None
    store: Path
    extra: tuple[str, ...]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"reproduce: {message} (see python -m experiments reproduce --help)")


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit status. Raises InputError for what a user can mend."""
    parser = _Parser(
        prog="python -m experiments reproduce", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("family", help="what to reproduce: " + ", ".join(names()))
    parser.add_argument("words", nargs="*", metavar="OPTION=VALUE", help="seeds, only, store, executor.jobs")
    parser.add_argument("--quick", action="store_true", help="small runs and two seeds: about two minutes")
    given = parser.parse_intermixed_args(list(words))
    chosen = family(given.family)
    return reproduce(chosen, read_words(given.words, chosen.name, quick=given.quick))


def read_words(words: Sequence[str], family: str, *, quick: bool) -> Asked:
    """Return the options that the words set; InputError with the nearest name for an unknown one."""
    seeds, only, store, extra = None, None, Path("runs"), []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in ("seeds", "only", "store", "executor.jobs", "load.workflows"):
            allowed = ("seeds", "only", "store", "executor.jobs", "load.workflows")
            raise InputError(nearest(name, allowed, what="option of reproduce"))
        if name == "seeds":
            if not value.isdecimal() or int(value) < 1:
                raise InputError(f"seeds={value}: expected a count of at least 1")
            seeds = int(value)
        elif name == "only":
            only = tuple(_matching(part, family) for part in value.split(","))
        elif name == "store":
            store = Path(value)
        else:
            extra.append(word)
    flat = None if only is None else tuple(id for ids in only for id in ids)
    return Asked(quick, seeds, flat, store, tuple(extra))


def _matching(part: str, family: str) -> tuple[str, ...]:
    """Return the family's targets that `part` names: R48 names R48a and R48b."""
    known = targets(family)
    found = tuple(id for id in known if part == id or (id.startswith(part) and id[len(part) :].islower()))
    if not found:
        raise InputError(nearest(part, known, what="target"))
    return found


def reproduce(family: Family, asked: Asked) -> int:
    """Run the family's studies, judge, print the card and write it; return the exit status."""
    known = targets(family.name)
    order = list(known)
    usual = tuple(id for id in order if not known[id].optional)
    wanted = usual if asked.only is None else asked.only
    needed = {s for id in wanted for s in family.needs.get(id, ())}
    chosen = [s for s in family.studies if asked.only is None or s in needed]
    studies, failed, commands = _run(family, chosen, asked)
    rows = [r for r in family.judge(studies, wanted, quick=asked.quick) if r.id in wanted]
    rows.sort(key=lambda r: (order.index(r.id), r.reading))
    size = (
        "--quick: two seeds and small runs, too few for a verdict to mean much"
        if asked.quick
        else "full runs"
    )
    seeds = {len(r.plan.seeds) for r in studies.values()}
    said = (
        f"{size}; {min(seeds, default=0)} to {max(seeds, default=0)} paired seeds; 95 % intervals over seeds"
    )
    about = {"family": family.name, "said": said, "commands": commands}
    folder = asked.store / "cards" / (f"{family.name}-quick" if asked.quick else family.name)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "card.json", render.as_json(rows, about))
    write_whole(folder / "card.html", render.as_html(rows, about))
    print(render.as_text(rows))
    print(f"card: {folder / 'card.html'}")
    return 1 if failed else 0


def _run(family: Family, chosen: Sequence[str], asked: Asked) -> tuple[dict[str, Results], bool, list[str]]:
    """Run what the store lacks of each study; return the results by study, whether a run failed, the commands."""
    store = Store(asked.store)
    store.create()
    store.clean()
    out: dict[str, Results] = {}
    failed = False
    commands = []
    for name in chosen:
        words = family.studies[name].command(quick=asked.quick, seeds=asked.seeds, extra=asked.extra)
        plan, jobs, settings = build([*words, f"store={asked.store}"])
        check_host(plan)
        say(f"study {name}")
        failures = run_missing(plan, jobs, settings, store, execute)
        for reason in sorted(set(failures.values())):
            say(f"  failed: {reason}")
        failed |= bool(failures)
        commands.append(plan.command)
        out[name] = Results(plan, store)
    return out, failed, commands
