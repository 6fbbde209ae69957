"""What arms are called: in tables, figures, headlines and files, the same everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from policies.api import OPTION
from policies.registry import SIMPLEST

# The policy of a family that does nothing. Families that always do something (evictors, routers, ...) have none.
OFF = {family: name for family, name in SIMPLEST.items() if name in ("never", "none")}
ALL_OFF = "all off"


def arm_names(written: Sequence[Mapping[str, str]], *, listed: bool = False) -> list[str]:
    """Return a name for each combination of policies (family -> policy as written), all different.

    written: distinct combinations, the first being what the others are compared with. A name is what the combinations
    differ in, family by family. Where several families differ, policies that do nothing are left out, and an arm of
    which nothing is left is "all off". listed: the combinations are a list of additions to the first rather than a
    product of families; where the first is the bare one (whatever is off anywhere is off in it), what an arm has in
    common with it is left out too. Policies of equal names in different families are told apart by their option.

    >>> base = dict(SIMPLEST)
    >>> arm_names([base, base | {"drafters": "suffix"}])
    ['none', 'suffix']
    >>> arm_names([base, base | {"drafters": "suffix"}, base | {"drafters": "suffix", "budgets": "fixed_k(k=8)"}])
    ['all off', 'suffix', 'suffix + fixed_k(k=8)']
    """
    first = written[0]
    compared = [f for f in OPTION if any(w[f] != first[f] for w in written)]
    if len(compared) < 2:
        return [w[compared[0] if compared else "evictors"] for w in written]
    off = [f for f in compared if any(w[f] == OFF.get(f) for w in written)]
    additions = listed and all(first[f] == OFF[f] for f in off)
    kept = [
        [
            f
            for f in compared
            if w[f] != OFF.get(f) and not (additions and w is not first and w[f] == first[f])
        ]
        for w in written
    ]
    names = [" + ".join(w[f] for f in families) or ALL_OFF for w, families in zip(written, kept, strict=True)]
    times = Counter(names)
    return [
        name if times[name] == 1 else " + ".join(f"{OPTION[f]}={w[f]}" for f in families)
        for name, w, families in zip(names, written, kept, strict=True)
    ]
