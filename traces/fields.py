"""Checked fields of a record: what was given, where, what is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError, at
from traces.reading import shown

MAX_TOKENS = 2**31 - 1
MAX_NS = 2**63 - 1


@dataclass(frozen=True)
class Record:
    """One JSON object and its place; every reader raises InputError naming file, line and field."""

    path: Path
    line: int
    values: dict[str, Any]

    def fail(self, field: str, expected: str) -> InputError:
        """Return the error for a field whose value is not what was expected. Does not raise."""
        if field not in self.values:
            return InputError(f"{at(self.path, self.line, field)}: missing, expected {expected}")
        return InputError(
            f"{at(self.path, self.line, field)}: got {shown(self.values[field])}, expected {expected}"
        )

    def tokens(self, field: str, default: int | None = None) -> int:
        """Return a token count from 0 to 2^31 - 1; `default` where the field is missing or null."""
        value = self.values.get(field)
        if value is None and default is not None:
            return default
        if (
            isinstance(value, Decimal)
            and value.is_finite()
            and abs(value) <= MAX_TOKENS
            and value == int(value)
        ):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TOKENS:
            raise self.fail(field, f"a whole number of tokens from 0 to {MAX_TOKENS}")
        return value

    def time_ns(self, field: str, unit_ns: int, unit: str, default: int | None = None) -> int:
        """Return a time in ns from a number of `unit`s, half to even; `default` where missing or null."""
        value = self.values.get(field)
        if value is None and default is not None:
            return default
        number = Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(number, Decimal) or not 0 <= number <= Decimal(MAX_NS) / unit_ns:
            raise self.fail(field, f"a number of {unit} of at least 0")
        return int((number * unit_ns).to_integral_value(rounding=ROUND_HALF_EVEN))

    def text(self, field: str, default: str | None = None) -> str:
        """Return a text that is not empty; a whole number is taken as text (ids are written either way)."""
        value = self.values.get(field)
        if value is None and default is not None:
            return default
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value:
            raise self.fail(field, "a text that is not empty")
        return value

    def texts(self, field: str) -> list[str]:
        """Return a list of texts; empty where the field is missing or null."""
        value = self.values.get(field)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise self.fail(field, "a list of texts")
        return value

    def ids(self, field: str, bits: int = 64) -> NDArray[np.uint64] | None:
        """Return ids of up to `bits` bits as uint64[n]; None where the field is missing or null."""
        value = self.values.get(field)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.fail(field, "a list of whole numbers")
        for v in value:
            if isinstance(v, bool) or not isinstance(v, int) or not 0 <= v < 1 << bits:
                raise InputError(
                    f"{at(self.path, self.line, field)}: got {shown(v)} in the list, "
                    f"expected whole numbers from 0 to 2^{bits} - 1"
                )
        return np.array(value, dtype=np.uint64)
