"""Import HoVer (`hover_*_release_v1.1.json`): claims to be verified over 2 to 4 Wikipedia articles.

The data set is claims, not traces. What comes from it: which claims there are, their length, their hops, and
which claims share an article. The workflow around a claim, with its refinement loops, is ours
(`traces/_hover_flow.py`), its sizes come from the sources named there, and what is assumed is said in the
provenance. No claim and no title is kept: titles are identities, claims are lengths.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

from traces._hover_flow import Claim, Recipe, add_workflow
from traces._hover_team import add_team_workflow
from traces._records import get, head_of, load_json, source_files, wanted
from traces._team import Team, in_part
from traces.builder import WorkloadBuilder
from traces.errors import InputError, at, nearest
from traces.schema import Workload

SOURCE = "hover-nlp/hover, data/hover/ (claims over Wikipedia articles, from HotpotQA)"
LICENCE = "repository MIT; claims derive from HotpotQA (CC BY-SA 4.0)"
SUFFIXES = (".json", ".json.gz")
BYTES_PER_TOKEN = (444, 100)  # of the claims, in cl100k: 4.44
FLOWS = ("chain", "team")
TEST_PER_MILLE = 300


def read(
    path: Path,
    *,
    seed: int = 0,
    block_tokens: int = 16,
    system_tokens: int = 512,
    max_loops: int = 3,
    flow: str = "chain",
    context: str = "own",
    part: str = "all",
    only: Path | None = None,
) -> Workload:
    """Return the workload of a HoVer file, or of every `*.json[.gz]` below a folder; one workflow a claim.

    seed: of lengths, tool times and loops, which are drawn once, here, and are data from then on.
    system_tokens: length of each agent's system prompt. max_loops: most refinement loops a claim.
    flow: chain (prompts made for each agent) or team (all agents read one transcript, `traces/_hover_team.py`);
    context: what a team's prompts share, own or shared (`traces/_team.py`).
    part: all claims, or train or test, which have no claim in common.
    only: import the claims whose uid is in this text file or `.workload`. Claims left out are counted in
    `provenance["not_imported"]`. Raises InputError "file: field '[3].uid' ...".
    """
    for name, value, low in (("block_tokens", block_tokens, 1), ("system_tokens", system_tokens, 1)):
        if value < low:
            raise InputError(f"{name}={value}, expected at least {low}")
    if not 0 <= max_loops <= 8:
        raise InputError(f"max_loops={max_loops}, allowed: 0 to 8")
    if flow not in FLOWS:
        raise InputError(nearest(flow, FLOWS, what="flow"))
    team = Team("hover", system_tokens, context) if flow == "team" else None
    recipe = Recipe(seed=seed, system_tokens=system_tokens, max_loops=max_loops)
    skipped: Counter[str] = Counter()
    names = wanted(only)
    claims: list[Claim] = []
    seen: set[str] = set()
    odd_hops = 0
    for file in source_files(path, SUFFIXES):
        value = load_json(file)
        if not isinstance(value, list):
            raise InputError(f"{file}: expected a list of claims")
        for i, record in enumerate(value):
            claim, text, hops = _claim(record, file, f"[{i}].")
            if names is not None and claim.name not in names:
                skipped["claim not asked for"] += 1
            elif not in_part(part, "hover", claim.key, TEST_PER_MILLE):
                skipped[f"claim outside part {part}"] += 1
            elif not claim.titles:
                skipped["claim without supporting facts"] += 1
            elif text in seen:
                skipped["claim with the text of an earlier one"] += 1
            else:
                seen.add(text)
                odd_hops += hops != len(claim.titles)
                claims.append(claim)
    if not claims:
        raise InputError(f"{path}: no claim with supporting facts in it")
    builder = WorkloadBuilder("hover", block_tokens)
    loops = Counter(
        add_workflow(builder, claim, recipe)
        if team is None
        else add_team_workflow(builder, claim, recipe, team)
        for claim in claims
    )
    return builder.build(_provenance(claims, skipped, odd_hops, loops, recipe, team))


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a file's head, or the first file of a folder, looks like HoVer."""
    found = head_of(path, head, SUFFIXES)
    return found.lstrip().startswith(b"[") and b'"supporting_facts"' in found and b'"num_hops"' in found


def _claim(record: Any, path: Path, inside: str) -> tuple[Claim, str, int]:
    text = get(record, "claim", str, path, inside)
    titles: dict[int, None] = {}
    for k, fact in enumerate(get(record, "supporting_facts", list, path, inside)):
        if not (isinstance(fact, list) and fact and isinstance(fact[0], str)):
            raise InputError(
                f"{at(path, None, f'{inside}supporting_facts[{k}]')}: expected a list [title, sentence]"
            )
        titles[_hash(fact[0])] = None
    tokens = max(1, len(text.encode()) * BYTES_PER_TOKEN[1] // BYTES_PER_TOKEN[0])
    name = get(record, "uid", str, path, inside)
    return Claim(name, _hash(name), tokens, tuple(titles)), text, get(record, "num_hops", int, path, inside)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _provenance(
    claims: list[Claim],
    skipped: Counter[str],
    odd_hops: int,
    loops: Counter[int],
    recipe: Recipe,
    team: Team | None,
) -> dict[str, Any]:
    hops = Counter(len(c.titles) for c in claims)
    said: dict[str, Any] = {
        "source": SOURCE,
        "licence": LICENCE,
        "format": "hover",
        "records": {
            "claims": len(claims),
            "hops": {str(h): hops[h] for h in sorted(hops)},
            "titles": len({t for c in claims for t in c.titles}),
            "claims_whose_num_hops_differs_from_their_titles": odd_hops,
        },
        "from_the_data": "claims, their UTF-8 length (4.44 bytes a cl100k token), hops, shared titles",
        "from_other_sources": {
            "passage tokens": "supporting paragraphs of 179 HotpotQA questions, cl100k, by quantile",
            "planner, refiner output": "LMCache magagent planning calls (20), cl100k, by quantile",
            "other output": "LMCache mini-SWE calls (108), cl100k, by quantile",
            "retriever time": "AutoCodeRover search: 93.3 % below 1 s, p99 2 s; other points assumed",
        },
        "assumed": {
            "workflow": "planner, then retriever and reader per title, verifier, loops of refiner, retriever,"
            " reader, verifier, then summarizer; one stage at a time; titles in the order of the file",
            "system_tokens": recipe.system_tokens,
            "chance of a refinement loop by hops 2, 3, 4": [p / 1000 for p in recipe.refine_per_mille],
            "max_loops": recipe.max_loops,
            "title re-read in a loop": "uniform among the claim's own",
        },
        "seed": recipe.seed,
        "workflows_by_loops": {str(n): loops[n] for n in sorted(loops)},
        "identity": "system prompt, passage, then private; outputs are identities without tokens",
        "not_imported": dict(sorted(skipped.items())),
    }
    if team is not None:
        said["assumed"] |= team.said() | {
            "workflow": "planner, then searcher, retrieval and reader per title, verifier, loops of refiner,"
            " searcher, retrieval, reader, verifier, then summarizer; one stage at a time"
        }
        said["identity"] = "preamble or system prompt; the rest, outputs included, is private to the workflow"
    return said
