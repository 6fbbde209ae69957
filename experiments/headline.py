"""The result in words: which arms differ from the first, by how much, how sure; or that none does by more than X.

Arms are tested against the first arm only. None is called the fastest: that would take tests among the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.columns import HEADLINE, by_key, digits, signed
from experiments.finished import no_latency, same_workflows

ALPHA = 0.05
Compared = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]


_NAMED = 4  # arms that one sentence names; the table has all


def headline(summary: Mapping[str, Any]) -> list[str]:
    """Return what mean workflow latency over the full run says, the main sentences first.

    Of a sweep: what it says at the first and at the last point of the axes. Where not every workflow finished it
    says so, and nothing of latency.
    """
    groups = [g for g in summary["groups"] if any(a["seeds"] for a in g["arms"])]
    if not groups:
        return ["No run has finished."]
    if len(groups) == 1:
        main, rest = _sentences(groups[0])
        return [*main, *rest]
    ends = (groups[0], groups[-1])
    return [f"At {axes_text(g['axes'])}, {_inner(' '.join(_sentences(g)[0]))}" for g in ends]


def _inner(sentence: str) -> str:
    """The sentence behind a comma: its first word in lower case, unless it is an arm's name."""
    first = sentence.split(" ", 1)[0]
    return first.lower() + sentence[len(first) :] if first in ("With", "No", "Nothing") else sentence


def axes_text(axes: Mapping[str, Any]) -> str:
    """Return `a=1, b=2` for a point of the axes."""
    return ", ".join(f"{k}={v}" for k, v in axes.items())


def _sentences(group: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the main sentences and the others."""
    base, *others = group["arms"]
    found = [a for a in group["arms"] if a["seeds"]]
    online = [a for a in others if a["seeds"] and not a["offline_reference"]]
    if reason := no_latency(found):
        return [reason], _hit_rate(base, online) if base["seeds"] and same_workflows(found) else []
    if not others:
        return [_alone(base)], []
    compared = [(a, a["windows"]["full"]["change"].get(HEADLINE)) for a in others]
    known = [(a, c) for a, c in compared if c is not None]
    if not known:
        return [f"Nothing can be compared with {base['name']}: no finished workflows in paired seeds."], []
    tested = [(a, c) for a, c in known if not a["offline_reference"]]
    offline = [_reference(base, a, c) for a, c in known if a["offline_reference"]]
    if not tested:
        return offline, []
    rest = [*_with_calibration(base, tested), *_hit_rate(base, [a for a, _ in tested]), *offline]
    return _contest(base, tested), rest


def _alone(arm: Mapping[str, Any]) -> str:
    column = by_key(HEADLINE)
    metric = arm["windows"]["full"]["metrics"][HEADLINE]
    if metric is None:
        return f"{arm['name']} finished no workflow."
    return (
        f"{arm['name']}: mean workflow latency {column.show(metric['mean'])}{_bounds(metric, column.unit)}."
    )


def _contest(base: Mapping[str, Any], arms: Compared) -> list[str]:
    """Say of each arm whether it is faster or slower than the first, or by how much it is not."""
    name = base["name"]
    if all(c["low"] is None for _, c in arms):
        told = [f"{_size(c)} with {a['name']}" for a, c in arms]
        return [
            f"With one paired seed no interval can be given: mean workflow latency was {_and(told)} than with {name}."
        ]
    sure = [(a, c) for a, c in arms if c["p_holm"] is not None and c["p_holm"] < ALPHA]
    unsure = [(a, c) for a, c in arms if (a, c) not in sure and c["low"] is not None]
    sentences = [
        *_differ(base, [(a, c) for a, c in sure if c["mean"] < 0], "faster"),
        *_differ(base, [(a, c) for a, c in sure if c["mean"] > 0], "slower"),
    ]
    if unsure:
        limit = max(max(abs(c["low"]), abs(c["high"])) for _, c in unsure)
        names = _and([a["name"] for a, _ in unsure]) if len(unsure) < 3 else f"{len(unsure)} arms"
        n = min(c["n"] for _, c in unsure)
        sentences.append(
            f"No difference in mean workflow latency between {name} and {names} larger than {digits(limit, 2)} % "
            f"(95 % intervals over {n} paired seeds)."
        )
    return sentences


def _differ(base: Mapping[str, Any], arms: Compared, how: str) -> list[str]:
    """One sentence for the arms that differ to one side, in the order of the table; of many the largest changes."""
    if len(arms) == 1:
        ((arm, change),) = arms
        return [
            f"{arm['name']} finishes workflows {how} than {base['name']}: mean latency {_size(change)}"
            f"{_bounds(change, '%')}."
        ]
    by_size = sorted(arms, key=lambda pair: -abs(float(pair[1]["mean"])))
    largest = [id(a) for a, _ in by_size[:_NAMED]]
    named = [(a, c) for a, c in arms if id(a) in largest]
    told = "; ".join(f"{a['name']} {_size(c)}{_bounds(c, '%')}" for a, c in named)
    if len(arms) > len(named):
        told += f"; the other {len(arms) - len(named)} by less"
    note = "each was tested against it, none against another"
    said = f"{len(arms)} arms finish workflows {how} than {base['name']} ({note}), mean latency: {told}."
    return [said] if arms else []


def _with_calibration(base: Mapping[str, Any], arms: Compared) -> list[str]:
    """What the arms' changes are worth when the profile itself may be wrong; nothing without draws."""
    drawn = [(a, c["calibrated"]) for a, c in arms if c.get("calibrated")]
    if not drawn:
        return []
    told = "; ".join(
        f"{_size(c)} with {a['name']} (95 % interval {_span(float(c['low']), float(c['high']))}, {c['n']} draws of the "
        "profile)"
        for a, c in drawn
    )
    return [f"With calibration error, mean latency is, against {base['name']}'s: {told}."]


def _and(texts: Sequence[str]) -> str:
    """Join texts with commas and a last "and".

    >>> _and(["a"]), _and(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _hit_rate(base: Mapping[str, Any], arms: list[Any]) -> list[str]:
    """What the arm with the largest change in GPU hit rate does to it; nothing where no arm changes it."""
    column = by_key("gpu_hit_rate")
    window = "full"
    changes = [(a, a["windows"][window]["change"].get(column.key)) for a in arms]
    known = [(a, c) for a, c in changes if c is not None and c["mean"] != 0]
    if not known:
        return []
    arm, change = max(known, key=lambda x: abs(float(x[1]["mean"])))
    what = "GPU hit rate" if len(arms) == 1 else "GPU hit rate, largest change"
    was, is_now = (column.show(a["windows"][window]["metrics"][column.key]["mean"]) for a in (base, arm))
    bounds = "no interval"
    if change["low"] is not None:
        bounds = f"95 % interval {signed(change['low'])} to {signed(change['high'])}"
    points = f"{signed(change['mean'])} percentage points, {bounds}"
    return [f"{what}: {is_now} with {arm['name']}, {was} with {base['name']} ({points})."]


def _reference(base: Mapping[str, Any], arm: Mapping[str, Any], change: Mapping[str, Any]) -> str:
    return (
        f"With the offline reference {arm['name']}, which knows the future, it is {_size(change)} than "
        f"with {base['name']}{_bounds(change, '%')}."
    )


def _size(change: Mapping[str, Any]) -> str:
    mean = float(change["mean"])
    return f"{digits(abs(mean), 2)} % {'lower' if mean <= 0 else 'higher'}"


def _bounds(change: Mapping[str, Any], unit: str) -> str:
    if change["low"] is None:
        return " (one paired seed, no interval)"
    low, high = float(change["low"]), float(change["high"])
    span = f"{digits(low)} to {digits(high)} {unit}" if unit != "%" else _span(low, high)
    return f" (95 % interval {span}, {change['n']} seeds)"


def _span(low: float, high: float) -> str:
    small, large = (digits(x, 2) for x in sorted((abs(low), abs(high))))
    if low >= 0 or high <= 0:
        return f"{small} to {large} % {'lower' if high <= 0 else 'higher'}"
    return f"{digits(-low, 2)} % lower to {digits(high, 2)} % higher"
