"""Shares measured in public sets, kept because the sets are not: numbers, each with the command that makes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def recurrence() -> dict[str, Any]:
    """Return, by name of a set, `source`, `command` and `keys` as `traces.recurrence_keys.measure` gives them."""
    value: dict[str, Any] = json.loads(
        (Path(__file__).parent / "recurrence.json").read_text(encoding="utf-8")
    )
    return value
