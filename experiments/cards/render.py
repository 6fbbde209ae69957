"""The card as a table, as JSON, and as a page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from experiments.cards.rows import INCONSISTENT, NOT, NOT_ATTEMPTED, REPRODUCED, SHAPE, Row
from experiments.report_html import Html, bullets, details, join, table, tag, text
from experiments.targets import target, written

VERDICTS = (REPRODUCED, SHAPE, NOT, INCONSISTENT, NOT_ATTEMPTED)


def as_json(rows: Sequence[Row], about: Mapping[str, Any]) -> str:
    """Return the card as JSON, the same bytes for the same runs."""
    body = {
        "about": dict(about),
        "rows": [
            {
                "target": r.id,
                "place": target(r.id).place,
                "setting": target(r.id).setting,
                "paper": target(r.id).values,
                "ours": r.ours,
                "reading": r.reading,
                "verdict": r.verdict,
                "checks": [{"text": c.text, "ok": c.ok, "of": c.of} for c in r.checks],
                "note": r.note,
            }
            for r in rows
        ],
        "verdicts": dict(Counter(r.verdict for r in rows)),
    }
    return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def as_text(rows: Sequence[Row]) -> str:
    """Return the card as lines of text; of each row what failed, too."""
    lines = []
    for r in rows:
        lines.append(f"{r.id:<5} {r.verdict:<26} {target(r.id).setting}")
        if r.ours:
            lines.append(f"      ours: {r.ours}")
        if r.reading:
            lines.append(f"      reading: {r.reading}")
        lines += [f"      fails: {c.text}" for c in r.checks if not c.ok]
        lines += [f"      note: {r.note}"] if r.note else []
    count = Counter(r.verdict for r in rows)
    lines.append("; ".join(f"{count[v]} {v}" for v in VERDICTS if count[v]))
    return "\n".join(lines)


def as_html(rows: Sequence[Row], about: Mapping[str, Any]) -> str:
    """Return the card as one page that loads nothing."""
    count = Counter(r.verdict for r in rows)
    cells = [
        [
            text(r.id),
            join([text(target(r.id).setting), tag("small", text(target(r.id).place))], " "),
            join([text(r.verdict), tag("small", text(r.reading))], " "),
            text(r.ours or r.note),
        ]
        for r in rows
    ]
    parts = [
        tag("h1", text("Foreserve: report card of reproductions")),
        tag("p", text("; ".join(f"{count[v]} {v}" for v in VERDICTS if count[v])), class_="headline"),
        tag("p", text(str(about["said"])), class_="second"),
        table([text(h) for h in ("Target", "Setting", "Verdict", "Ours")], cells),
        tag("h2", text("Checks behind each verdict")),
    ]
    for r in rows:
        lines = [f"{'holds' if c.ok else 'FAILS'} ({c.of}): {c.text}" for c in r.checks]
        lines += [f"note: {r.note}"] if r.note else []
        lines.append(f"published: {written(r.id) or 'a figure without numbers in its text'}")
        parts.append(details(f"{r.id}, {r.verdict}: {r.reading}", bullets(lines)))
    parts.append(tag("h2", text("Reproduce")))
    parts.append(tag("pre", text("\n".join(about["commands"]))))
    style = (files("experiments") / "templates" / "report.css").read_text(encoding="utf-8")
    head = join(
        [
            Html('<meta charset="utf-8">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            tag("title", text("Foreserve: report card")),
            Html(f"<style>\n{style}</style>"),
        ]
    )
    body = tag("main", *parts)
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'
