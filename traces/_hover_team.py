"""HoVer claims verified by a team with refinement loops, as message-graph frameworks run it.

planner > (searcher > reader) for each supporting title > verifier > [refiner > searcher > reader > verifier while
evidence is found wanting] > summarizer > end. The searcher's call ends in a retrieval, whose passage joins the
transcript. Lengths, times and the chance of a loop are those of `traces/_hover_flow.py`.
"""

from __future__ import annotations

from traces import draws
from traces._hover_flow import (
    PASSAGE_TOKENS,
    PLAN_TOKENS,
    STEP_TOKENS,
    Claim,
    Recipe,
    from_quantiles,
    loops_of,
    retriever_ns,
)
from traces._team import Chat, Team
from traces._text import identity
from traces.builder import WorkloadBuilder


def add_team_workflow(builder: WorkloadBuilder, claim: Claim, recipe: Recipe, team: Team) -> int:
    """Add the workflow of a claim; return its number of refinement loops. Mutates `builder`."""
    builder.workflow(claim.name)
    chat = Chat(builder, team, claim.key, claim.tokens)
    turns = 0

    def call(agent: str, lengths: tuple[int, ...]) -> None:
        nonlocal turns
        turns += 1
        chat.call(
            agent, from_quantiles(lengths, draws.bits(recipe.seed, "hover/team/output", claim.key, turns))
        )

    def search(title: int) -> None:
        call("searcher", STEP_TOKENS)
        passage = from_quantiles(PASSAGE_TOKENS, draws.bits(0, "hover/passage", title))
        wait_ns = retriever_ns(draws.bits(recipe.seed, "hover/team/retriever", claim.key, turns))
        chat.tool("retriever", wait_ns, result=(identity("hover", "title", title), passage))
        call("reader", STEP_TOKENS)

    call("planner", PLAN_TOKENS)
    for title in claim.titles:
        search(title)
    call("verifier", STEP_TOKENS)
    loops = loops_of(claim, recipe)
    for loop in range(loops):
        call("refiner", PLAN_TOKENS)
        search(claim.titles[draws.bits(recipe.seed, "hover/again", claim.key, loop) % len(claim.titles)])
        call("verifier", STEP_TOKENS)
    call("summarizer", STEP_TOKENS)
    return loops
