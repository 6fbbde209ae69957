"""One experiment of a card, as words of the command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Study:
    """One experiment of the card.

    words  options of `python -m experiments run`
    quick  words that replace or join them under --quick
    """

    words: tuple[str, ...]
    quick: tuple[str, ...] = ()

    def command(self, *, quick: bool, seeds: int | None, extra: tuple[str, ...] = ()) -> list[str]:
        """Return the words to run, later ones for the same option winning."""
        chosen: dict[str, str] = {}
        for word in (*self.words, *(self.quick if quick else ()), *extra):
            chosen[word.partition("=")[0]] = word
        if seeds is not None:
            chosen["seeds"] = f"seeds={seeds}"
        return list(chosen.values())
