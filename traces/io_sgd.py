"""Import Schema-Guided Dialogue: what an assistant offers, and what the user does then.

The data set is dialogues, not traces. What comes from it: offers, menus and picks, the acts of users while an offer
stands, which searches and items recur, sizes of utterances. The workflow is ours (`traces/_hci_flow.py`); think times
follow from the words a user reads by published models of reading and pointing, other times and the length of what a
model writes are the clock's (`traces/clocks/hci.json`). Menus and single offers are kept apart. No text is kept.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from traces._hci_flow import QUANTITIES, Hci
from traces._records import head_of, source_files, wanted
from traces._sgd_records import SELECT, Chain, chains
from traces.branch_flow import Flow
from traces.builder import WorkloadBuilder
from traces.clocks import load
from traces.errors import InputError, nearest
from traces.identity import identity
from traces.recurrence import seen_before
from traces.schema import Workload

SOURCE = "Schema-Guided Dialogue (google-research-datasets/dstc8-schema-guided-dialogue)"
LICENCE = "CC BY-SA 4.0"
OFFERS = ("single", "menu", "all")
REPLIES = ("clock", "recorded")
SUFFIXES = (".json", ".json.gz")


def read(
    path: Path,
    *,
    offers: str = "single",
    replies: str = "clock",
    clock: str = "hci",
    seed: int = 0,
    block_tokens: int = 16,
    only: Path | None = None,
) -> Workload:
    """Return the workload of a `dialogues_*.json` file or of all below a folder; one workflow an offer and its rounds.

    offers: chains with a menu of two items or more in them (`menu`), those without (`single`), or `all`. replies:
    length of what a model writes, the clock's or that of the recorded utterance. clock: a name or a file `*.json`.
    seed: of what the clock draws. only: import the chains whose name (dialogue:turn) is in this text file or
    `.workload`. Raises InputError.
    """
    for name, value, allowed in (("offers", offers, OFFERS), ("replies", replies, REPLIES)):
        if value not in allowed:
            raise InputError(nearest(value, allowed, what=f"option {name}"))
    if block_tokens < 1:
        raise InputError("block_tokens must be at least 1")
    times = load(clock).require(*QUANTITIES)
    skipped: Counter[str] = Counter()
    names = wanted(only)
    found: list[Chain] = []
    for file in source_files(path, SUFFIXES):
        if file.name.startswith("schema."):
            continue
        for chain in chains(file, skipped):
            if names is not None and chain.name not in names:
                skipped["offer not asked for"] += 1
            elif offers != "all" and chain.menu != (offers == "menu"):
                skipped[f"offer that is not {offers}"] += 1
            else:
                found.append(chain)
    if not found:
        raise InputError(f"{path}: no offer asked for in it")
    builder = WorkloadBuilder("hci", block_tokens)
    branches = builder.with_branches()
    for chain in found:
        builder.workflow(chain.name)
        flow = Flow(builder, branches, times, seed, identity("chain", chain.name))
        Hci(flow, chain, replies == "recorded").add()
    items = [[r.items[r.picked] for r in c.rounds if r.act == SELECT] for c in found]
    return builder.build(
        {
            "source": SOURCE,
            "licence": LICENCE,
            "format": "sgd",
            "records": _counts(found),
            "recurrence": {
                "item picked": {str(n): share for n, share in seen_before(items).items()},
                "search": {
                    str(n): s for n, s in seen_before([[c.call] if c.call else [] for c in found]).items()
                },
            },
            "from_the_data": "offers, acts, picks, items, searches, sizes of utterances (4.44 bytes a token),"
            " words to read",
            "assumed": {
                "workflow": "[search >] offer > wait > (details > reply | search > reply | reply)",
                "length of what a model writes": "clock"
                if replies == "clock"
                else "the recorded utterance's",
                "what a user reads": "the recorded utterance",
            },
            "seed": seed,
            **times.said(),
            "not_imported": dict(sorted(skipped.items())),
        }
    )


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a file's head, or the first file of a folder, looks like SGD."""
    found = head_of(path, head, SUFFIXES)
    return b'"dialogue_id"' in found and b'"speaker"' in found and b'"frames"' in found


def _counts(found: list[Chain]) -> dict[str, Any]:
    rounds = [r for c in found for r in c.rounds]
    menus = [r for r in rounds if len(r.items) > 1]
    places = Counter(r.picked for r in menus if r.act == SELECT and len(r.items) == 3)
    return {
        "offers": len(found),
        "waits": len(rounds),
        "waits_at_a_menu": len(menus),
        "acts": dict(sorted(Counter(r.act for r in rounds).items())),
        "picks_by_place_on_a_menu_of_three": {str(k): places[k] for k in sorted(places)},
    }
