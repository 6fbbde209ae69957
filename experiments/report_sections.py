"""The parts of the report below the figures: what the numbers rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.columns import COLUMNS
from experiments.headline import axes_text
from experiments.report_html import Html, bullets, details, flat, join, key_values, prose, table, tag, text

Summary = Mapping[str, Any]


def facts(summary: Summary) -> Html:
    """Return the few facts a reader needs beside the headline."""
    workload, identity = summary["workload"], summary["profile"].get("identity", {})
    seeds = summary["seeds"]
    counts = [f"{workload[k]} {k}" for k in ("workflows", "requests") if isinstance(workload.get(k), int)]
    gpu = f"{identity['tp']} x {identity['gpu']}" if {"tp", "gpu"} <= set(identity) else ""
    shown = {
        "workload": ", ".join([str(workload.get("name", "")), *counts]),
        "load": load_text(summary["config"].get("load", {}), summary["config"].get("replicas", 1)),
        "engine": " ".join(str(identity[k]) for k in ("engine", "model", "precision") if k in identity),
        "GPU": gpu,
        "KV pool": kv_text(summary["kv"]),
        "step times": str(identity.get("timing", "")) + stated_error(summary["profile"]),
        "seeds": f"{len(seeds)} ({', '.join(str(s) for s in seeds)})",
    }
    return tag(
        "div",
        *[tag("div", tag("b", text(k)), prose(v)) for k, v in shown.items() if v.strip()],
        class_="facts",
    )


def load_text(load: Mapping[str, Any], replicas: Any) -> str:
    """Return how workflows arrive in one line; what an axis of the sweep varies stands in the tables."""
    parts = [f"{load['workflows']} workflows a run"] if load.get("workflows") else []
    if load.get("loop") == "closed":
        parts.append(f"closed loop, {load.get('concurrency')} in progress")
    elif load.get("loop") == "open":
        rate = load.get("rate_per_s")
        parts.append(
            f"open loop, {rate:g} a second" if rate is not None else "open loop, as recorded or as swept"
        )
    if replicas != 1:
        parts.append(f"{replicas} replicas")
    return ", ".join(parts)


def stated_error(profile: Mapping[str, Any]) -> str:
    """Return the profile's stated error in words, "" where it states none."""
    mape = profile.get("error", {}).get("mape_percent")
    return "" if mape is None else f", stated error {mape:g} % (mean absolute)"


def kv_text(kv: Mapping[str, Any]) -> str:
    """Return capacity and its source in one line."""
    if not kv.get("blocks"):
        return ""
    return f"{kv['blocks']:,} blocks ({kv['source']})" if kv.get("source") else f"{kv['blocks']:,} blocks"


def warnings(summary: Summary) -> Html:
    """Return warnings and notes in a box, nothing where there are none."""
    lines = [*summary["warnings"], *summary["notes"]]
    if not lines:
        return Html("")
    title = tag("b", text("Before you rely on these numbers"))
    return tag("div", title, bullets(lines), class_="note")


def failures(summary: Summary) -> Html:
    """Return the runs that are missing, with the reason."""
    if not summary["failures"]:
        return Html("")
    rows = [[text(f["arm"]), text(f["seed"]), text(f["reason"])] for f in summary["failures"]]
    return join(
        [tag("h2", text("Runs that are missing")), table([text("arm"), text("seed"), text("reason")], rows)]
    )


def timing(summary: Summary) -> Html:
    """Return timing source and calibration identity with its stated error."""
    profile = summary["profile"]
    error = profile.get("error", {})
    draws = summary.get("profile_draws", 0)
    known = (
        f"Step times come from this profile. Every arm also ran under the same {draws} draws of its step costs, "
        "spread over the seeds: the intervals marked with calibration include what that moves."
        if draws
        else "Step times come from this profile. Its stated error applies to absolute times; all arms share the "
        "profile, but how far its error carries over to differences between them is not stated."
        if error
        else "Step times come from this profile, which states no error: read absolute times as rough."
    )
    return join(
        [
            tag("h2", text("Where the times come from")),
            tag("p", text(known)),
            *_shallow(profile, "profile", open_fields=("identity", "error")),
        ]
    )


def workload(summary: Summary) -> Html:
    """Return the workload and its provenance."""
    shown = {k: v for k, v in summary["workload"].items() if k != "warnings"}
    return join([tag("h2", text("Workload")), *_shallow(shown, "workload", open_fields=("provenance",))])


def config(summary: Summary) -> Html:
    """Return what differs from the defaults, the arms' policies, and the whole configuration on demand."""
    changed = summary["changed"]
    arms = [a for g in summary["groups"] for a in g["arms"]]
    rows = [
        [
            text(a["label"]),
            text(
                "; ".join(f"{k}: {v}" for k, v in sorted(a["policies"].items()) if not v.startswith("none"))
                or "none"
            ),
            text(_percent(a["fast_forward_ratio"])),
        ]
        for a in arms
    ]
    return join(
        [
            tag("h2", text("Configuration")),
            tag(
                "p",
                text(
                    "Options that differ from the defaults:" if changed else "Every option is at its default."
                ),
            ),
            key_values(changed) if changed else Html(""),
            tag("h3", text("Arms")),
            table([text("arm"), text("policies"), text("fast-forwarded steps")], rows),
            details("every option of the first arm", key_values(summary["config"])),
        ]
    )


def definitions(summary: Summary) -> Html:
    """Return what the metrics of the table mean; the others on demand."""
    shown = [c.key for c in COLUMNS]
    metrics, slo = summary["metrics"], summary["slo"]

    def rows(keys: list[str]) -> Html:
        return table([], [[text(k), text(metrics[k]["unit"]), text(metrics[k]["definition"])] for k in keys])

    return join(
        [
            tag("h2", text("What the metrics mean")),
            tag("p", text(f"SLO: TTFT up to {slo['ttft_ms']:g} ms and TPOT up to {slo['tpot_ms']:g} ms.")),
            rows(shown),
            details("the other metrics in summary.json", rows([k for k in metrics if k not in shown])),
            tag("p", text(METHOD + (METHOD_DRAWS if summary.get("profile_draws") else ""))),
        ]
    )


def _shallow(mapping: Mapping[str, Any], what: str, open_fields: tuple[str, ...]) -> list[Html]:
    """Show single values, and those one level down in `open_fields`; the whole mapping opens on a click."""
    top: dict[str, Any] = {}
    for key, value in mapping.items():
        if key in open_fields and isinstance(value, Mapping):
            top |= {f"{key}.{k}": v for k, v in value.items() if _single(v)}
        elif _single(value):
            top[key] = value
    out = [key_values(top)]
    if list(flat(mapping)) != list(flat(top)):
        out.append(details(f"everything the {what} states", key_values(mapping)))
    return out


def _single(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_single(v) and not isinstance(v, list | tuple) for v in value)
    return not isinstance(value, Mapping)


METHOD = (
    "Values are means over seeds of each seed's own value. Changes are against the first arm within each "
    "seed: times and rates as the mean log-ratio, in percent; shares in percentage points (pt). "
    "Intervals are Student's t over seeds, 95 %; those of a mean are cut where the metric cannot be (below 0, for "
    "shares above 1), which leaves how often they cover as it is. Colour marks changes whose p-value is below "
    "5 % after Holm's correction over the arms, metric by metric."
)

METHOD_DRAWS = (
    " Intervals with calibration add the variance, over draws of the profile, of the difference to the same seed's "
    "run under the profile itself; it is not divided by the number of draws, since the true profile is one of "
    "them. Colours then follow the p-values that include calibration error."
)


def reproduce(summary: Summary) -> Html:
    """Return the exact command."""
    command = tag("pre", tag("code", text(summary["command"])))
    return join([tag("h2", text("Run it again")), command])


def point_title(axes: Mapping[str, Any]) -> str:
    """Return the heading of one point of the axes."""
    return axes_text(axes) or "Results"


def _percent(estimate: Mapping[str, Any] | None) -> str:
    return "-" if estimate is None or estimate["mean"] is None else f"{100 * estimate['mean']:.1f} %"
