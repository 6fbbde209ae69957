"""No published result is an input: target values stand in one data file and nowhere in what a simulation is given."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from experiments.targets import numbers, target, targets, written
from traces.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
# Not calibration/data: thousands of measured three-digit rates, among which each number turns up by chance.
INPUTS = (
    "experiments/conf/**/*.yaml", "calibration/profiles/*.json", "sim/**/*.py",
    "policies/**/*.py", "traces/**/*.py", "traces/workloads/data/*.json", "experiments/models/*.json",
    "experiments/*.py", "experiments/cards/**/*.py",
)  # fmt: skip
NUMBER = re.compile(r"(?<![\w.])\d+\.?\d*(?![\w.]*\d)")


def significant(value: float) -> str:
    """Return a number's digits without leading and trailing zeros and without the point."""
    return f"{value:.12g}".replace(".", "").strip("0")


def telling() -> set[float]:
    """Return the target values of three or more significant digits, but for counts that a setting implies."""
    found = (n for t in targets().values() if not t.exact for n in numbers(t.values))
    return {float(n) for n in found if len(significant(n)) >= 3}


def prices(file: Path) -> str:
    """Return a file's text; of a profile without its statistics, hundreds of numbers that no simulation reads."""
    text = file.read_text(encoding="utf-8")
    if file.parent.name != "profiles":
        return text
    body = json.loads(text)
    return json.dumps({k: v for k, v in body.items() if k not in ("error", "posterior", "bands")})


def found(text: str) -> set[float]:
    return {float(n) for n in NUMBER.findall(text)} & telling()


def test_there_are_values_to_look_for_and_the_lint_sees_them():
    assert len(telling()) > 60
    some = next(n for n in numbers(target("R46").values) if len(significant(n)) >= 4)
    assert found(f"  rate: {some}\n") == {some}
    assert found(f"[1, {some}]") == {some}
    assert found(f"{some}7 x{some} 1{some}") == set()


@pytest.mark.parametrize("pattern", INPUTS)
def test_no_target_value_stands_in_what_a_simulation_is_given(pattern: str):
    files = sorted(ROOT.glob(pattern))
    assert files
    leaks = {str(f.relative_to(ROOT)): hits for f in files if (hits := found(prices(f)))}
    assert leaks == {}


def test_an_unknown_target_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="unknown target 'R64'"):
        target("R64")
    assert "lru" in written("R46")
