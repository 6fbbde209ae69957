"""Names in English text: runs of capitalised words, as a reader would look them up.

No model and no list of names: what a cheap drafter could find while it reads a passage.
"""

from __future__ import annotations

import re

from traces.identity import plain

_WORDS = re.compile(r"\S+").findall
# Words inside a name that are written small; a run neither begins nor ends with one.
_INSIDE = frozenset(_WORDS("of the and & de la le du di da del der den van von y e al el ibn bin"))
# Capitalised only because a sentence begins there.
_OPENERS = frozenset(
    _WORDS(
        "a an the in on at by for from to of with as it its he she his her him they their them this that these those"
        " there here who whom whose which what when where why how if while after before during since until although"
        " though but and or nor not so yet is are was were be been has have had do does did will would can could may"
        " might must shall should both each either neither some many most more other another one two three four five"
        " all also however such then than only first second third last next later early according because"
    )
)
_MONTHS = frozenset(
    _WORDS("january february march april may june july august september october november december")
)
_WORD = re.compile(r"[^\W_]+(?:[-'’.&][^\W_]+)*\.?|[^\w\s]")
_ABBREVIATION = re.compile(
    r"(?:[^\W\d_]\.?|[A-Z][a-z]\.|(?:Mrs|Rev|Gen|Col|Sgt|Hon|Gov|Sen|Rep|Ltd|Inc)\.|(?:[^\W\d_]\.)+[^\W\d_]\.?)$"
)
_POSSESSIVE = re.compile(r"['’]s$")


def mentions(text: str) -> list[tuple[str, int]]:
    """Return (plain form, offset in characters) of the names in `text`, in order, repeats included.

    A name of several parts ("X of Y") is given whole, and its parts after it. Numbers and months are no names.

    >>> [name for name, _ in mentions("In 1990 the band met Ann Lee in the Port of Hull.")]
    ['ann lee', 'port of hull', 'port', 'hull']
    """
    out: list[tuple[str, int]] = []
    run: list[tuple[str, int]] = []
    for match in _WORD.finditer(text):
        word, at = match.group(), match.start()
        bare = _POSSESSIVE.sub("", word.rstrip("."))
        ends = word.endswith(".") and not _ABBREVIATION.match(word)
        if word[:1].isupper() and not (not run and bare.casefold() in _OPENERS):
            run.append((bare, at))
            ends = ends or bare != word.rstrip(".")  # a possessive ends its name
        elif run and (word in _INSIDE or word[:1].isdigit()):
            run.append((bare, at))
        else:
            ends = True
        if ends:
            out += _names(run)
            run = []
    return out + _names(run)


def _names(run: list[tuple[str, int]]) -> list[tuple[str, int]]:
    while run and not run[-1][0][:1].isupper():
        run = run[:-1]
    if not run:
        return []
    parts: list[list[tuple[str, int]]] = [[]]
    for word in run:
        if word[0] in _INSIDE:
            parts.append([])
        else:
            parts[-1].append(word)
    found = [run] if len(parts) == 1 else [run, *(p for p in parts if p)]
    named = [(plain(" ".join(w for w, _ in words)), words[0][1]) for words in found]
    return [(name, at) for name, at in named if name and not _is_date(name)]


def _is_date(name: str) -> bool:
    return all(word.isdigit() or word in _MONTHS for word in name.split())
