"""Azure LLM inference traces of 2023 and 2024: TIMESTAMP, ContextTokens, GeneratedTokens.

Every row is a workflow of one request. Times are absolute in the source; arrivals here count from the
earliest row, whose time stamp is kept in provenance as `origin`.
"""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from pathlib import Path

import numpy as np

from traces.csv_rows import whole_tokens
from traces.errors import InputError, at
from traces.flat import flat_workload
from traces.reading import base_provenance, lines, shown
from traces.schema import Workload

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?(?:\+00:00|Z)?", re.ASCII
)


def sniff(path: Path, head: bytes) -> bool:
    """Say whether the content begins with the columns of the Azure traces."""
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace").strip().lstrip("\ufeff")
    return tuple(c.strip() for c in first.split(",")) == COLUMNS


def read(path: Path) -> Workload:
    """Read an Azure trace, plain or gzip; InputError names file, line and field.

    Rows with a context of 0 tokens cannot be run: they are counted in `not_imported`.
    """
    stamps: list[int] = []
    prompts: list[int] = []
    outputs: list[int] = []
    source = lines(path)
    first = next(source, None)
    if first is None:
        raise InputError(f"{path}: empty file, expected a header: {','.join(COLUMNS)}")
    if not sniff(path, first[1]):
        raise InputError(f"{at(path, first[0])}: expected the header {','.join(COLUMNS)}")
    for line, raw in source:
        try:
            cells = raw.decode("utf-8").split(",")
        except UnicodeDecodeError:
            raise InputError(f"{at(path, line)}: not UTF-8 text") from None
        if len(cells) != len(COLUMNS):
            raise InputError(
                f"{at(path, line)}: {len(cells)} cells, expected {len(COLUMNS)} ({','.join(COLUMNS)})"
            )
        stamps.append(_stamp_ns(cells[0].strip(), path, line))
        prompts.append(whole_tokens(cells[1].strip(), path, line, COLUMNS[1]))
        outputs.append(whole_tokens(cells[2].strip(), path, line, COLUMNS[2]))
    keep = np.array(prompts, dtype=np.int32) > 0
    dropped = len(keep) - int(np.count_nonzero(keep))
    if not keep.any():
        raise InputError(f"{path}: no request to import")
    stamp_ns = np.array(stamps, dtype=np.int64)[keep]
    origin_ns = int(stamp_ns.min())
    provenance = base_provenance(path, "azure", len(keep), {})
    provenance["origin"] = _shown_stamp(origin_ns)
    provenance["not_imported"] = {"prompt of 0 tokens": dropped} if dropped else {}
    return flat_workload(
        path.stem,
        stamp_ns - origin_ns,
        np.array(prompts, dtype=np.int32)[keep],
        np.array(outputs, dtype=np.int32)[keep],
        provenance,
    )


def _stamp_ns(text: str, path: Path, line: int) -> int:
    """Return nanoseconds since 1970 of a UTC time stamp with up to nine decimals, in integer arithmetic."""
    match = _STAMP.fullmatch(text)
    day = _day(match[1]) if match else None
    if match is None or day is None or not 0 <= day < 100_000:
        raise InputError(
            f"{at(path, line, 'TIMESTAMP')}: got {shown(text)}, "
            "expected like 2023-11-16 18:17:03.9799600 (UTC)"
        )
    seconds = day * 86_400 + int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4])
    return seconds * 1_000_000_000 + int((match[5] or "").ljust(9, "0"))


@lru_cache(maxsize=1024)
def _day(text: str) -> int | None:
    try:
        return (datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)).days
    except ValueError:
        return None


def _shown_stamp(time_ns: int) -> str:
    seconds, fraction = divmod(time_ns, 1_000_000_000)
    at_second = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{at_second:%Y-%m-%d %H:%M:%S}.{fraction:09d}"
