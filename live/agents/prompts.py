"""Prompts of a workload's stages as text: equal identity, equal text.

A workload has no text, only numbers that stand for it. A prompt is made of what its rendered input is made of: the
stage's template, its own content, what its parents answered or the choice that led here, and the versions of what it
reads. So equal rendered inputs give equal prompts, which is what makes a result that was made early the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from live.tiny.text import document
from traces.rendering import Rendering
from traces.schema import StageKind, Workload

_TEMPLATE, _CONTENT, _CHOICE, _SOURCE, _RESULT = range(5)
_RESULT_WORDS = 24
_MIN_WORDS = 4
_MASK = (1 << 63) - 1


class Prompts:
    """Texts of a workload. Stateless once made.

    text_of   text of a value, None for one that no model wrote: a tool's, whose text is made here
    scale     tokens of a prompt in the workload to one word here
    output_scale   tokens of an answer in the workload to one that is asked for
    source    what the workload was drawn from: lengths are the same in every draw of it, and so are prompts
    """

    def __init__(
        self,
        workload: Workload,
        rendering: Rendering,
        text_of: Callable[[int], str | None],
        scale: float,
        output_scale: float,
        source: Workload | None = None,
    ) -> None:
        self._rendering = rendering
        self._text_of = text_of
        self._content: list[int] = rendering.branches.stage_content.tolist()
        self._words: dict[tuple[int, int], tuple[int, int, int]] = {}
        for given in (source, workload) if source is not None else (workload,):
            self._measure(given, scale, output_scale)

    def _measure(self, workload: Workload, scale: float, output_scale: float) -> None:
        """Note lengths: stages of one template and content have one text, so theirs are those of the first one."""
        b = workload.branches
        identities = (
            [self._identity(s) for s in range(workload.n_stages)]
            if b is None
            else list(zip(b.stage_fingerprint.tolist(), b.stage_content.tolist(), strict=True))
        )
        for s, kind in enumerate(workload.stage_kind.tolist()):
            if kind == StageKind.LLM:
                prompt = max(round(int(workload.prompt_tokens[s]) / scale), _MIN_WORDS)
                shared = max(round(int(workload.prompt_shared_tokens[s]) / scale), _MIN_WORDS)
                output = max(round(int(workload.output_tokens[s]) / output_scale), 1)
                self._words.setdefault(identities[s], (prompt, min(shared, prompt // 2), output))

    def prompt(
        self, stage: int, values: Mapping[int, int], reads: tuple[tuple[int, int], ...], agent: str = ""
    ) -> str:
        """Return the prompt of an LLM stage, given what its parents returned and the versions that it reads."""
        total, template, _ = self._words[self._identity(stage)]
        fingerprint, content = self._identity(stage)
        lines = [f"{agent or 'agent'}: {words(_TEMPLATE, fingerprint, count=max(template, _MIN_WORDS))}"]
        for parent, choice in self._rendering.inputs[stage]:
            lines.append(
                self.text(values[parent])
                if choice is None
                else f"chosen: {words(_CHOICE, choice, count=_MIN_WORDS)}"
            )
        for resource, version in reads:
            lines.append(f"source: {words(_SOURCE, resource, version, count=_MIN_WORDS)}")
        left = total - sum(len(line.split()) for line in lines)
        lines.append(f"task: {words(_CONTENT, content, count=max(left, _MIN_WORDS))}")
        return "\n".join(lines) + "\n"

    def output_tokens(self, stage: int) -> int:
        """Return the most tokens that an LLM stage may answer."""
        return self._words[self._identity(stage)][2]

    def text(self, value: int) -> str:
        """Return the text that a value stands for."""
        known = self._text_of(value)
        return words(_RESULT, value, count=_RESULT_WORDS) if known is None else known

    def _identity(self, stage: int) -> tuple[int, int]:
        return self._rendering.fingerprint[stage], self._content[stage]


def words(*ids: int, count: int) -> str:
    """Return `count` words of generated text that depend on the numbers alone; the first tells all numbers apart.

    >>> len(words(1, 2, count=7).split())
    7
    """
    out = [".".join(f"{i:x}" for i in ids)]
    part = 0
    while len(out) < count:
        out += document(1, *(i & _MASK for i in ids), part).split()
        part += 1
    return " ".join(out[:count])
