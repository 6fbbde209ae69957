"""Requests that repeat others in whole, in part, or not at all: what a cache of finished work can gain, class by
class.

Every question has one role, by a hash of its id. A base comes as it is and once more word for word (`exact`), and as a
request of its own text that shares all sub-topics but the last, which a donor lends (`partial`). Questions that
share no sub-topic with any of these, nor with each other, are the control (`fresh`). Bases come first, in the order
of the hash; the rest follows mixed. How the classes weigh is up to whoever reads the results: each is named in its
workflow's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traces._musique_records import Question
from traces.identity import identity

CLASSES = ("base", "exact", "partial", "fresh")


def mixed(questions: Sequence[Question]) -> list[Question]:
    """Return the requests, named "CLASS/ID"; a partial one "partial/ID+DONOR". Does not mutate."""
    order = sorted(questions, key=lambda q: identity("mix", q.name))
    bases, donors, rest = ([q for q in order if identity("mix/role", q.name) % 3 == k] for k in range(3))
    out = [replace(q, name=f"base/{q.name}") for q in bases]
    later = [replace(q, name=f"exact/{q.name}") for q in bases]
    for base, donor in zip(bases, donors, strict=False):
        kept = base.hops[:-1]
        own = {h.title.key for h in kept}
        lent = next((h for h in reversed(donor.hops) if h.title.key not in own), None)
        if kept and lent is not None:
            key = identity("question", base.key, donor.key)
            name = f"partial/{base.name}+{donor.name}"
            hops = (*kept, replace(lent, waits_for=()))
            later.append(replace(base, name=name, key=key, hops=hops, passages=(*base.passages[:-1], None)))
    used = {h.title.key for q in (*out, *later) for h in q.hops}
    for question in rest:
        topics = {h.title.key for h in question.hops}
        if not topics & used:
            later.append(replace(question, name=f"fresh/{question.name}"))
            used |= topics
    return out + sorted(later, key=lambda q: identity("mix/order", q.name))


def parts(name: str) -> list[str]:
    """Return the ids of the questions that a request was made of.

    >>> parts("partial/2hop__1_2+3hop1__4_5_6")
    ['2hop__1_2', '3hop1__4_5_6']
    """
    return name.rpartition("/")[2].split("+")
