"""The fact-verification workflow that a HoVer claim is turned into, and the sizes it is given.

planner > (retriever > reader) for each supporting title > verifier > [refiner > retriever > reader > verifier
while evidence is found wanting] > summarizer. The retriever is a TOOL stage, the others are LLM calls. A
prompt is the agent's system prompt (one per agent, shared by all workflows), then for readers the passage
of a title (shared by all readers of that title), then what is private to the workflow: claim, plan, notes.
Verifier and refiner continue their own conversation when they are called again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from traces import draws
from traces._text import Chain, Part, Text, identity
from traces.builder import WorkloadBuilder

# Quantiles 0, 5, .. 100 % of tokens (cl100k) in the supporting paragraphs, with title, of 179 HotpotQA
# questions. HoVer's titles are articles of the same Wikipedia extract.
PASSAGE_TOKENS = (
    23, 39, 47, 53, 61, 66, 69, 73, 81, 86, 92, 101, 108, 114, 121, 132, 140, 151, 165, 185, 272,
)  # fmt: skip
# Quantiles 0, 10, .. 100 % of output tokens (cl100k) of LMCache's magagent planning calls (20) ...
PLAN_TOKENS = (117, 138, 145, 167, 185, 218, 224, 242, 444, 461, 554)
# ... and of its mini-SWE calls (108): one thought and one action.
STEP_TOKENS = (39, 59, 72, 85, 95, 108, 119, 131, 158, 182, 318)
# Dispatch of search tools by AutoCodeRover: 93.3 % below 1 s, p99 2 s; points 0, 50 and 100 % are assumed.
RETRIEVER_MS = ((0, 20), (500, 200), (933, 1000), (990, 2000), (1000, 4000))


@dataclass(frozen=True)
class Claim:
    """One claim: its uid, a hash of it, its length, and its titles as hashes in the order of the file."""

    name: str
    key: int
    tokens: int
    titles: tuple[int, ...]


@dataclass(frozen=True)
class Recipe:
    """What the data set does not say. `refine_per_mille`: how likely a verification asks for more."""

    seed: int = 0
    system_tokens: int = 512
    refine_per_mille: tuple[int, int, int] = (200, 350, 500)  # claims of 2, 3, 4 hops
    max_loops: int = 3


def loops_of(claim: Claim, recipe: Recipe) -> int:
    """Return how often the verifier sends the claim back, 0 to `recipe.max_loops`."""
    chance = recipe.refine_per_mille[min(max(len(claim.titles), 2), 4) - 2]
    for loop in range(recipe.max_loops):
        if draws.bits(recipe.seed, "hover/refine", claim.key, loop) % 1000 >= chance:
            return loop
    return recipe.max_loops


def add_workflow(builder: WorkloadBuilder, claim: Claim, recipe: Recipe) -> int:
    """Add the workflow of a claim; return its number of refinement loops. Mutates `builder`."""
    builder.workflow(claim.name)
    flow = _Flow(builder, claim.key, recipe)
    about = (identity("hover", "claim", claim.key), claim.tokens)
    plan = flow.llm("planner", flow.system("planner").with_(about), PLAN_TOKENS)
    notes: list[Part] = []
    for title in claim.titles:
        notes.append(flow.read(title, about, [plan, *notes]))
    checked = flow.system("verifier").with_(about, *notes)
    verdict = flow.llm("verifier", checked, STEP_TOKENS)
    asked = flow.system("refiner").with_(about, *notes, verdict)
    loops = loops_of(claim, recipe)
    for loop in range(loops):
        query = flow.llm("refiner", asked, PLAN_TOKENS)
        again = draws.bits(recipe.seed, "hover/again", claim.key, loop) % len(claim.titles)
        note = flow.read(claim.titles[again], about, [query, *notes])
        notes.append(note)
        checked = checked.with_(verdict, note)
        verdict = flow.llm("verifier", checked, STEP_TOKENS)
        asked = asked.with_(query, note, verdict)
    flow.llm("summarizer", flow.system("summarizer").with_(about, *notes, verdict), STEP_TOKENS)
    return loops


class _Flow:
    """One workflow under construction: a chain of stages, each after the one before."""

    def __init__(self, builder: WorkloadBuilder, key: int, recipe: Recipe) -> None:
        self._chain = Chain(builder)
        self._key = key
        self._recipe = recipe
        self._calls = 0

    def system(self, agent: str) -> Text:
        return Text([(identity("hover", f"system/{agent}"), self._recipe.system_tokens)])

    def llm(self, agent: str, prompt: Text, lengths: Sequence[int]) -> Part:
        """Add an LLM call; return its output as a part for later prompts."""
        output_tokens = from_quantiles(lengths, self._draw("output"))
        output = (identity("hover", "output", self._key, self._calls), output_tokens)
        self._chain.call(agent, prompt, output)
        self._calls += 1
        return output

    def read(self, title: int, about: Part, history: Sequence[Part]) -> Part:
        """Add retrieval of a title and its reading; return the reader's note."""
        self._chain.tool("retriever", retriever_ns(self._draw("retriever")))
        passage_tokens = from_quantiles(PASSAGE_TOKENS, draws.bits(0, "hover/passage", title))
        passage = (identity("hover", "title", title), passage_tokens)
        return self.llm("reader", self.system("reader").with_(passage, about, *history), STEP_TOKENS)

    def _draw(self, purpose: str) -> int:
        return draws.bits(self._recipe.seed, f"hover/{purpose}", self._key, self._calls)


def retriever_ns(bits: int) -> int:
    """Return a retriever's time in ns, interpolated in `RETRIEVER_MS` at 64 random bits."""
    ppm = (bits >> 32) * 1_000_000 >> 32
    for (p0, ms0), (p1, ms1) in pairwise(RETRIEVER_MS):
        if ppm < p1 * 1000:
            return ms0 * 1_000_000 + (ms1 - ms0) * 1000 * (ppm - p0 * 1000) // (p1 - p0)
    raise AssertionError("quantiles end at 1000")


def from_quantiles(quantiles: Sequence[int], bits: int) -> int:
    """Return a whole number interpolated between evenly spaced quantiles at 64 random bits."""
    at, rest = divmod((bits >> 32) * (len(quantiles) - 1), 1 << 32)
    return quantiles[at] + ((quantiles[at + 1] - quantiles[at]) * rest >> 32)
