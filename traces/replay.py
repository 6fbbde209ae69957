"""Requests that come again, word for word: a workload in which a stated share of workflows repeats earlier ones."""

from __future__ import annotations

import numpy as np

from traces import draws
from traces.errors import InputError
from traces.resample import GLOBAL, resample, take
from traces.schema import Workload


def replay(workload: Workload, workflows: int, share: float, seed: int) -> Workload:
    """Return `workflows` workflows of which the share `share` (rounded to whole ones) are exact repeats.

    Fresh ones come from `resample`. A repeat equals a workflow that stands before it, uniformly drawn: prompts,
    contents, choices, resources, lengths and times are its own again, so that everything may be reused. Which
    places are repeats is drawn too, never the first; a larger share keeps the repeats of a smaller one. Repeats are
    named "NAME@k". No arrival times. Raises InputError. Does not mutate.
    """
    if not 0 <= share <= 1 or workflows < 1:
        raise InputError(f"replay: workflows={workflows}, share={share}, expected at least 1, and 0 to 1")
    repeats = min(round(share * workflows), workflows - 1)
    luck = draws.uniform_array(seed, "replay/place", np.arange(1, workflows))
    is_repeat = np.zeros(workflows, dtype=bool)
    is_repeat[1 + np.argsort(luck, kind="stable")[:repeats]] = True
    base = resample(workload, workflows - repeats, seed)
    pick: list[int] = []
    names: list[str] = []
    fresh = 0
    for place, again in enumerate(is_repeat.tolist()):
        if again:
            earlier = draws.bits(seed, "replay/earlier", place) % fresh
            pick.append(earlier)
            names.append(f"{base.workflow_names[earlier]}@{place}")
        else:
            pick.append(fresh)
            names.append(base.workflow_names[fresh])
            fresh += 1
    # Every segment is everybody's: a repeat's prompts are the very prompts of the workflow that it repeats.
    owner = np.full(len(base.prefix), GLOBAL, dtype=np.int32)
    taken = take(base, np.array(pick, dtype=np.int64), owner, tuple(names))
    said = {"share": share, "repeats": repeats, "seed": seed}
    return Workload(**{**vars(taken), "provenance": {**base.provenance, "replayed": said}})
