"""What a reader must know of how a comparison was set up, in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.inputs import WorkloadRef, open_workload, seeds_matter, too_long
from experiments.settings import Settings
from policies.costs import Profile
from sim.config import LoadConfig


def plan_notes(points: Sequence[tuple[Settings, WorkloadRef, Profile]], draws: int) -> list[str]:
    """Return the notes of a plan, each once; points: those of the axes. draws: of the profile, for each arm."""
    notes = []
    loads = [(ref, chosen.load) for chosen, ref, _ in points]
    if any(not seeds_matter(load) for _, load in loads):
        notes.append("Recorded arrival times are replayed: seeds change only what policies draw.")
    for ref, load in loads:
        notes += _workload(ref, load)
    notes += _idle_concurrency(loads)
    notes += [line for chosen, _, profile in points for line in _length(chosen, profile)]
    if draws:
        from calibration import uncertainty

        for origin in dict.fromkeys(uncertainty.source(profile) for _, _, profile in points):
            notes.append(
                f"{draws} draws of the profile: {origin}. Policies price with the drawn profile, as if they had been "
                "calibrated on the same machine."
            )
    if any(load.think_scale != 1 for _, load in loads):
        scales = ", ".join(dict.fromkeys(f"{load.think_scale:g}" for _, load in loads))
        notes.append(f"Recorded think times are multiplied by {scales}.")
    return list(dict.fromkeys(notes))


def _workload(ref: WorkloadRef, load: LoadConfig) -> list[str]:
    notes = []
    held, left_out = open_workload(ref).n_workflows, _left_out(ref, load)
    if left_out:
        notes.append(
            f"{left_out} of {held} workflows of {Path(ref.name).name} are left out: they have a request of more than "
            f"{load.request_tokens_max:,} tokens (load.request_tokens_max)."
        )
    if load.workflows is not None and load.workflows > held - left_out:
        notes.append(
            f"{Path(ref.name).name} holds {held - left_out} workflows; {load.workflows} are copies with private "
            "tokens re-keyed, so that copies share only what different workflows shared."
        )
    return notes


def _left_out(ref: WorkloadRef, load: LoadConfig) -> int:
    if load.request_tokens_max is None:
        return 0
    return int(too_long(open_workload(ref), load.request_tokens_max).sum())


def _idle_concurrency(loads: Sequence[tuple[WorkloadRef, LoadConfig]]) -> list[str]:
    """Warn of closed loops that want more workflows in progress than there are."""
    reached: dict[tuple[str, int], list[int]] = {}
    for ref, load in loads:
        count = load.workflows or open_workload(ref).n_workflows - _left_out(ref, load)
        if load.loop == "closed" and load.concurrency >= count:
            reached.setdefault((Path(ref.name).name, count), []).append(load.concurrency)
    notes = []
    for (name, count), several in reached.items():
        values = sorted(set(several))
        if values[-1] == count:
            continue
        above = ", ".join(str(v) for v in values if v > count)
        line = (
            f"Only {count} workflows of {name} are run, fewer than load.concurrency={above}: all start at once, and "
            "none takes the place of one that ends."
        )
        if len(values) > 1:
            line += f" Points with load.concurrency={', '.join(map(str, values))} are therefore equal."
        notes.append(line)
    return notes


def _length(chosen: Settings, profile: Profile) -> list[str]:
    wanted, known = chosen.engine.max_model_len, profile.max_model_len
    if wanted is None or wanted <= known:
        return []
    model = profile.identity.get("model", profile.name)
    return [
        f"engine.max_model_len={wanted:,} is longer than the model's {known:,} ({model}): assumes rope scaling."
    ]
