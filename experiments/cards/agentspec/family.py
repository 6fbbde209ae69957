"""AgentSpec's part of the report card: its studies, which targets read them, and the judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.cards.agentspec import methods, repeats, sweeps
from experiments.cards.agentspec.studies import STUDIES
from experiments.cards.family import Family
from experiments.cards.results import Results
from experiments.cards.rows import INCONSISTENT, NOT_ATTEMPTED, Row
from policies.costs import Profile
from policies.views import HostInfo

NEEDS: dict[str, tuple[str, ...]] = {
    "R25": ("methods",), "R30": ("methods",), "R34": ("methods",), "R35": ("methods",),
    "R27": ("batch",), "R37": ("batch",), "R36": ("ablation",), "R39": ("gpu",),
}  # fmt: skip
PROFILE = "A100x1--Qwen3-8B--bf16--vllm"
ABSENT = {
    "R24": "EAGLE-3's acceptance is a swept input; for the suffix trees see R37, whose largest batches begin at 1",
    "R31": "USACO trajectories are not public; R30 has the workloads there are",
    "R32": "MTP's acceptance is a swept input, and there is no calibrated MiMo-7B",
    "R33": "Spec-Bench outputs are not at hand; MT-bench answers stand in as the control of R30",
    "R38": "no pair of recordings with and without thinking",
}


def judge(studies: Mapping[str, Results], wanted: Sequence[str], *, quick: bool) -> list[Row]:
    """Return the rows of the targets asked for, from the studies that were run."""
    rows: list[Row] = [
        Row(id, "-", "-", NOT_ATTEMPTED, note=why) for id, why in ABSENT.items() if id in wanted
    ]
    profile = _profile()
    if "R26" in wanted:
        rows.append(intensity(profile))
    if "methods" in studies:
        found = studies["methods"]
        rows += [
            methods.rejection(found),
            *methods.table(found),
            methods.breakdown(found),
            methods.latency(found),
        ]
    if "batch" in studies:
        rows += [*sweeps.budgets(studies["batch"]), *sweeps.batches(studies["batch"])]
    if "ablation" in studies:
        rows += sweeps.ablation(studies["ablation"])
    if "gpu" in studies:
        rows += sweeps.gpus(studies["gpu"])
    if "R28" in wanted:
        rows.append(repeats.by_block_and_query())
    if "R29" in wanted:
        rows.append(repeats.against_redundancy(HostInfo(profile, 16, 1 << 20), quick=quick))
    return rows


def intensity(profile: Profile) -> Row:
    """Show contradiction A10: the paper's AI against the datasheet's ratio and the profile's knee."""
    from calibration.gpus import GPUS
    from policies._budget_room import knee_tokens

    g = GPUS[str(profile.identity["gpu"])]
    ridge = g.bf16_flop_per_s / g.bytes_per_s
    one, wide = profile.linear_ps_at(1), profile.linear_ps_at(sweeps.INTENSITY)
    return Row(
        "R26",
        f"{sweeps.INTENSITY} tokens take {wide / one:.2f} times the linear layers' time of one; the profile's knee is "
        f"at {knee_tokens(profile)} tokens, the datasheet's ratio of compute to bandwidth is {ridge:.0f}",
        f"A10: AI = {sweeps.INTENSITY} in the paper, an input of its budgets; {profile.name}",
        INCONSISTENT,
        note="a budget that trusts the paper's constant drafts where verification is no longer free",
    )


def _profile() -> Profile:
    from calibration import catalog

    return catalog.open(PROFILE)


FAMILY = Family("agentspec", STUDIES, NEEDS, judge)
