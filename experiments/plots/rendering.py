"""Which figures an experiment has, made from its summary and run logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.plan import Plan, load_plan
from experiments.plots import (
    FIGURES,
    arms,
    drafting,
    hit_rate,
    latency_cdf,
    occupancy,
    region,
    repeats,
    speedup,
    sweep,
)
from experiments.plots.output import inline_svg, save
from experiments.plots.source import load_arms, looks
from experiments.plots.style import FORMATS, context, panels
from experiments.store import PLAN, Store, read_json
from experiments.summary import SUMMARY
from policies.api import Bucketer
from traces.errors import InputError, nearest

OVER_TIME: Mapping[str, Any] = {"hit_rate": hit_rate, "latency_cdf": latency_cdf, "occupancy": occupancy}


def render(experiment_dir: Path, figure: str, out: Path) -> Path:
    """See `experiments.plots.render`."""
    if figure not in FIGURES:
        raise InputError(nearest(figure, FIGURES, what="figure"))
    if out.suffix.lstrip(".").lower() not in FORMATS:
        raise InputError(f"{out}: {nearest(out.suffix.lstrip('.'), FORMATS, what='figure format')}")
    plan = load_plan(experiment_dir / PLAN)
    with context():
        store = Store(experiment_dir.resolve().parent.parent)
        if figure in ("speedup", "repeats", "region"):
            made = of_plan(figure, plan, store)
        elif figure == "drafting":
            made = _drafting(plan, store)
        elif figure in OVER_TIME:
            made = over_time(figure, plan, store)
        else:
            made = from_summary(figure, plan, read_json(experiment_dir / SUMMARY))
        return save(made, out)


def of_plan(figure: str, plan: Plan, store: Store) -> Figure:
    """Return a figure of the whole plan: of its runs, or of its workloads; call within `style.context()`."""
    try:
        if figure == "speedup":
            return _made(speedup, speedup.data(plan, store))
        if figure == "region":
            return _made(region, region.data(plan, store))
        from calibration import catalog
        from experiments.inputs import WorkloadRef, open_workload
        from policies.views import HostInfo

        names = dict.fromkeys(str(a.axes.get("workload", plan.config["workload"])) for a in plan.arms)
        host = HostInfo(catalog.open(str(plan.profile["name"])), 16, 1 << 20)
        return _made(repeats, repeats.data([open_workload(WorkloadRef(n)) for n in names], host))
    except ValueError as e:
        raise InputError(f"figure {figure}: {plan.name}: {e}") from None


def _drafting(plan: Plan, store: Store) -> Figure:
    found = load_arms(plan, store)
    if not any(run.column("steps", "drafted_tokens").any() for arm in found for run in arm.runs):
        raise InputError(f"figure drafting: {plan.name} has no complete run that drafts")
    from calibration import catalog
    from experiments.draft_gain import plain_price
    from experiments.policyspec import parse

    bucketer = parse("bucketers", plan.arms[0].policies["bucketers"]).load(None)
    assert isinstance(bucketer, Bucketer)
    engine = plan.config["engine"]
    price = plain_price(
        catalog.open(str(plan.profile["name"])),
        bucketer,
        engine["max_num_seqs"],
        engine["max_num_batched_tokens"],
    )
    return _made(drafting, drafting.data(found, price, [a.draft_ns for a in found]))


def over_time(figure: str, plan: Plan, store: Store, axes: Mapping[str, Any] | None = None) -> Figure:
    """Return a figure made from run logs at one point of the axes; call within `style.context()`."""
    module = OVER_TIME[figure]
    found = load_arms(plan, store, axes)
    if not found:
        raise InputError(f"figure {figure}: {plan.name} has no complete run to show")
    return _made(module, module.data(found))


def from_summary(figure: str, plan: Plan, summary: Mapping[str, Any]) -> Figure:
    """Return a figure made from the summary; call within `style.context()`."""
    groups = summary["groups"]
    if figure == "sweep":
        if sweep.axis_of(groups) is None:
            raise InputError(f"figure sweep: {plan.name} sweeps no option; add one, e.g. +sweep=concurrency")
        return _made(sweep, sweep.data(groups, looks(plan)))
    compared = arms.data(groups[0], looks(plan))
    if not any(compared.rows.values()):
        raise InputError(f"figure arms: {plan.name} has no second arm to compare")
    return _made(arms, compared)


def report_figures(
    plan: Plan, store: Store, summary: Mapping[str, Any], axes: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, str, str]]:
    """Yield (title, svg, caption) of what a report shows at one point of the axes."""
    group = next(g for g in summary["groups"] if g["axes"] == dict(axes))
    with context():
        compared = arms.data(group, looks(plan))
        if any(compared.rows.values()):
            title = f"Change against {compared.baseline}"
            yield title, inline_svg(_made(arms, compared), f"{prefix}arms", title), arms.CAPTION
        found = load_arms(plan, store, axes)
        if not found:
            return
        for name, module in OVER_TIME.items():
            made = _made(module, module.data(found))
            yield module.TITLE, inline_svg(made, f"{prefix}{name}", module.TITLE), module.CAPTION


def sweep_figures(plan: Plan, summary: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (title, svg, caption) for each slice of the axes; nothing where nothing is swept."""
    groups = summary["groups"]
    if sweep.axis_of(groups) is None:
        return
    with context():
        for i, fixed in enumerate(sweep.slices(groups)):
            found = sweep.data(groups, looks(plan), fixed)
            rest = "".join(f", {k}={v}" for k, v in fixed.items())
            title = f"Metrics against {found.axis}{rest}"
            yield title, inline_svg(_made(sweep, found), f"sweep{i}", title), sweep.CAPTION


def _made(module: Any, found: Any) -> Figure:
    figure, axes = panels(module.MOSAIC, module.SIZE, **getattr(module, "RATIOS", {}))
    module.draw(found, axes)
    return figure
