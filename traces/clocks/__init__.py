"""Clock files: lengths and times that a data set does not hold, each with its source, written before any run.

A file is one JSON object: {"about": text, "quantities": {NAME: {"source": text, and one of
"value": n | "quantiles": [n, ...] (evenly spaced, 0 to 100 %) | "points": [[per mille, n], ...] (0 to 1000)}}}.
All numbers are whole; the unit ends the name. A source that begins with "assumed" is no measurement.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from traces import draws
from traces.errors import InputError, at, nearest
from traces.identity import canonical_json, identity
from traces.reading import parse_json, read_bytes, shown

FOLDER = Path(__file__).parent
_FORMS = ("value", "quantiles", "points")


@dataclass(frozen=True)
class Clock:
    """The quantities of one workload: name -> [(per mille, number), ...] from 0 to 1000, ascending."""

    name: str
    about: str
    curves: dict[str, tuple[tuple[int, int], ...]]
    sources: dict[str, str]

    def draw(self, quantity: str, seed: int, *ids: int) -> int:
        """Return the number of `quantity` for these ids, linear between the points of its curve.

        Equal (quantity, seed, ids) give equal numbers. Raises KeyError for a quantity `require` did not ask for.
        """
        curve = self.curves[quantity]
        ppm = (draws.bits(seed, f"clock/{quantity}", *ids) >> 32) * 1_000_000 >> 32
        for (p0, n0), (p1, n1) in pairwise(curve):
            if ppm < p1 * 1000:
                return n0 + (n1 - n0) * (ppm - p0 * 1000) // ((p1 - p0) * 1000)
        return curve[-1][1]

    def fixed(self, quantity: str) -> int:
        """Return the number of a quantity that is given as one value; InputError when it is a distribution."""
        curve = self.curves[quantity]
        if len({n for _, n in curve}) > 1:
            raise InputError(f"clock {self.name}: quantity {quantity!r} must be one 'value'")
        return curve[0][1]

    def require(self, *quantities: str) -> Clock:
        """Return self; InputError when one of `quantities` is missing or one is given that nobody asks for."""
        for name in quantities:
            if name not in self.curves:
                raise InputError(f"clock {self.name}: no quantity {name!r}, needed: {', '.join(quantities)}")
        for name in self.curves:
            if name not in quantities:
                raise InputError(f"clock {self.name}: {nearest(name, quantities, what='quantity')}")
        return self

    def said(self) -> dict[str, Any]:
        """Return what a provenance says of this clock: its name, a digest, and each quantity's source."""
        return {
            "clock": self.name,
            "clock_digest": f"{identity('clock', canonical_json([self.curves, self.sources])):016x}",
            "clock_sources": self.sources,
        }


def names() -> tuple[str, ...]:
    """Return the names of the clocks that come with the package, sorted."""
    return tuple(sorted(p.stem for p in FOLDER.glob("*.json")))


def load(name: str) -> Clock:
    """Return a clock by the name of one in this package, or from a user's `*.json` file; InputError if unsound."""
    path = Path(name) if name.endswith(".json") else FOLDER / f"{name}.json"
    if path.parent == FOLDER and path.stem not in names():
        raise InputError(nearest(name, names(), what="clock") + ", or a file *.json")
    value = parse_json(read_bytes(path, 1 << 20), path)
    quantities = value.get("quantities") if isinstance(value, dict) else None
    if not isinstance(quantities, dict) or set(value) != {"about", "quantities"}:
        raise InputError(f"{path}: expected an object with 'about' and 'quantities'")
    curves, sources = {}, {}
    for quantity, given in quantities.items():
        place = at(path, field=f"quantities.{quantity}")
        if not isinstance(given, dict) or not isinstance(given.get("source"), str) or not given["source"]:
            raise InputError(f"{place}: expected an object with a 'source'")
        curves[quantity] = _curve(given, place)
        sources[quantity] = given["source"]
    return Clock(path.stem, str(value["about"]), curves, sources)


def _curve(given: dict[str, Any], place: str) -> tuple[tuple[int, int], ...]:
    form = [f for f in _FORMS if f in given]
    if len(form) != 1 or set(given) != {"source", form[0]}:
        raise InputError(f"{place}: expected 'source' and one of {', '.join(_FORMS)}")
    value = given[form[0]]
    points: Any
    if form[0] == "value":
        points = [[0, value], [1000, value]]
    elif form[0] == "quantiles":
        rows = value if isinstance(value, list) and len(value) > 1 and 1000 % (len(value) - 1) == 0 else []
        points = [[1000 * i // max(len(rows) - 1, 1), n] for i, n in enumerate(rows)]
    else:
        points = value
    pairs = (
        points
        if isinstance(points, list) and all(isinstance(p, list) and len(p) == 2 for p in points)
        else []
    )
    sound = (
        len(pairs) > 1
        and all(type(n) is int and 0 <= n < 2**31 for pair in pairs for n in pair)
        and (pairs[0][0], pairs[-1][0]) == (0, 1000)
        and all(p0 < p1 and n0 <= n1 for (p0, n0), (p1, n1) in pairwise(pairs))
    )
    if not sound:
        raise InputError(
            f"{place}: got {shown(json.dumps(value, default=str))}, expected whole numbers that do not fall, at per"
            " mille from 0 to 1000 (quantiles: 2, 3, 5, 6, 9, 11, 21, ... of them)"
        )
    return tuple((p, n) for p, n in pairs)
