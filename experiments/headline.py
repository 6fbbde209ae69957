"""The result in words: who wins, by how much, how sure; or that nothing differs by more than X."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.columns import HEADLINE, by_key, digits, signed

ALPHA = 0.05


def headline(summary: Mapping[str, Any]) -> list[str]:
    """Return what mean workflow latency over the full run says, the main sentence first.

    Of a sweep: what it says at the first and at the last point of the axes.
    """
    groups = [g for g in summary["groups"] if any(a["seeds"] for a in g["arms"])]
    if not groups:
        return ["No run has finished."]
    if len(groups) == 1:
        return _sentences(groups[0])
    return [f"At {axes_text(g['axes'])}, {_inner(_sentences(g)[0])}" for g in (groups[0], groups[-1])]


def _inner(sentence: str) -> str:
    """The sentence behind a comma: its first word in lower case, unless it is an arm's name."""
    first = sentence.split(" ", 1)[0]
    return first.lower() + sentence[len(first) :] if first in ("With", "No", "Nothing") else sentence


def axes_text(axes: Mapping[str, Any]) -> str:
    """Return `a=1, b=2` for a point of the axes."""
    return ", ".join(f"{k}={v}" for k, v in axes.items())


def _sentences(group: Mapping[str, Any]) -> list[str]:
    base, *others = group["arms"]
    if not others:
        return [_alone(base)]
    compared = [(a, a["windows"]["full"]["change"].get(HEADLINE)) for a in others]
    compared = [(a, c) for a, c in compared if c is not None]
    if not compared:
        return [f"Nothing can be compared with {base['name']}: no finished workflows in paired seeds."]
    online = [(a, c) for a, c in compared if not a["offline_reference"]]
    offline = [(a, c) for a, c in compared if a["offline_reference"]]
    sentences = []
    if online:
        sentences.append(_contest(base, online))
        sentences += _with_calibration(base, online)
        sentences += _hit_rate(base, [a for a, _ in online])
    return sentences + [_reference(base, a, c) for a, c in offline]


def _alone(arm: Mapping[str, Any]) -> str:
    column = by_key(HEADLINE)
    metric = arm["windows"]["full"]["metrics"][HEADLINE]
    if metric is None:
        return f"{arm['name']} finished no workflow."
    return (
        f"{arm['name']}: mean workflow latency {column.show(metric['mean'])}{_bounds(metric, column.unit)}."
    )


def _contest(base: Mapping[str, Any], arms: list[tuple[Any, Any]]) -> str:
    name = base["name"]
    if all(c["low"] is None for _, c in arms):
        arm, change = min(arms, key=lambda x: float(x[1]["mean"]))
        return (
            f"With one paired seed no interval can be given: {arm['name']}'s mean workflow latency was "
            f"{_size(change)} than {name}'s."
        )
    sure = [(a, c) for a, c in arms if c["p_holm"] is not None and c["p_holm"] < ALPHA]
    faster = [(a, c) for a, c in sure if c["mean"] < 0]
    if faster:
        arm, change = min(faster, key=lambda x: float(x[1]["mean"]))
        return (
            f"{arm['name']} finishes workflows fastest: mean latency {_size(change)} than {name}'s"
            f"{_bounds(change, '%')}."
        )
    if sure and len(sure) == len(arms):
        arm, change = min(sure, key=lambda x: float(x[1]["mean"]))
        who = f"{arm['name']}'s" if len(arms) == 1 else f"the closest, {arm['name']}'s,"
        return (
            f"{name} finishes workflows fastest: {who} mean latency is {_size(change)}{_bounds(change, '%')}."
        )
    unsure = [(a, c) for a, c in arms if (a, c) not in sure]
    limit = max(max(abs(c["low"]), abs(c["high"])) for _, c in unsure if c["low"] is not None)
    names = " and ".join(a["name"] for a, _ in unsure) if len(unsure) < 3 else f"{len(unsure)} arms"
    n = min(c["n"] for _, c in unsure)
    return (
        f"No difference in mean workflow latency between {name} and {names} larger than {digits(limit, 2)} % "
        f"(95 % intervals over {n} paired seeds)."
    )


def _with_calibration(base: Mapping[str, Any], arms: list[tuple[Any, Any]]) -> list[str]:
    """What the fastest arm's change is worth when the profile itself may be wrong; nothing without draws."""
    drawn = [(a, c["calibrated"]) for a, c in arms if c.get("calibrated")]
    if not drawn:
        return []
    arm, change = min(drawn, key=lambda x: float(x[1]["mean"]))
    span = _span(float(change["low"]), float(change["high"]))
    return [
        f"With calibration error, {arm['name']}'s mean latency is {_size(change)} than {base['name']}'s (95 % interval "
        f"{span}, {change['n']} draws of the profile)."
    ]


def _hit_rate(base: Mapping[str, Any], arms: list[Any]) -> list[str]:
    """What the arm with the largest change in GPU hit rate does to it; nothing where no arm changes it."""
    column = by_key("gpu_hit_rate")
    window = "full"
    changes = [(a, a["windows"][window]["change"].get(column.key)) for a in arms]
    known = [(a, c) for a, c in changes if c is not None and c["mean"] != 0]
    if not known:
        return []
    arm, change = max(known, key=lambda x: abs(float(x[1]["mean"])))
    was, is_now = (column.show(a["windows"][window]["metrics"][column.key]["mean"]) for a in (base, arm))
    bounds = "no interval"
    if change["low"] is not None:
        bounds = f"95 % interval {signed(change['low'])} to {signed(change['high'])}"
    points = f"{signed(change['mean'])} percentage points, {bounds}"
    return [f"GPU hit rate: {is_now} with {arm['name']}, {was} with {base['name']} ({points})."]


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
