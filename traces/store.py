"""The native file of a workload (`.workload`): a zip of one .npy a column and a workload.json.

Columns are stored in the narrowest integer type that holds them, as differences where that is narrower. The
same workload gives the same bytes: fixed order, fixed time stamps. Nothing is unpickled.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.branches import DTYPES, from_columns
from traces.errors import InputError, at
from traces.prefix import PrefixTree
from traces.reading import MAX_FILE_BYTES, shown
from traces.schema import SCHEMA_VERSION, Workload
from traces.transcript import Transcript

SUFFIX = ".workload"
_INDEX = "workload.json"
_MAX_INDEX_BYTES = 256 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
_TRANSCRIPT: dict[str, type[np.generic]] = {
    "transcript.output_block": np.int8,
    "transcript.prompt_base": np.int32,
    "transcript.prompt_kept": np.int32,
    "transcript.prompt_ptr": np.int64,
    "transcript.prompt_ids": np.uint32,
}
_OPTIONAL = {"workflow_arrival_ns", "output_ptr", "output_ids", *_TRANSCRIPT}
# Kept as the whole numbers of their bits.
_AS_BITS: dict[type[np.generic], type[np.integer[Any]]] = {
    np.uint64: np.int64,
    np.float32: np.int32,
    np.bool_: np.uint8,
}
_BRANCH = {f"branches.{name}" for name in DTYPES}
_OWN_DTYPES: dict[str, type[np.generic]] = {
    "workflow_arrival_ns": np.int64,
    "stage_workflow": np.int32,
    "stage_kind": np.int8,
    "stage_agent": np.int32,
    "stage_duration_ns": np.int64,
    "prompt_tokens": np.int32,
    "output_tokens": np.int32,
    "parent_ptr": np.int64,
    "parent_idx": np.int32,
    "prefix.parent_segment": np.int32,
    "prefix.start_tokens": np.int32,
    "prefix.end_tokens": np.int32,
    "prompt_segment": np.int32,
    "prompt_shared_tokens": np.int32,
    "sequence_segment": np.int32,
    "sequence_shared_tokens": np.int32,
    "output_ptr": np.int64,
    "output_ids": np.uint32,
}
_DTYPES = _OWN_DTYPES | _TRANSCRIPT | {f"branches.{name}": kind for name, kind in DTYPES.items()}


def sniff(path: Path, head: bytes) -> bool:
    """Say whether the content begins like a file that `save` wrote."""
    return head.startswith(b"PK\x03\x04") and _INDEX.encode() in head[:64]


def save(workload: Workload, path: Path) -> None:
    """Write `workload` to `path`, aside and then renamed: the file is whole or not there."""
    errors = workload.errors()
    if errors:
        raise InputError(f"{workload.name}: {errors[0]}")
    columns: dict[str, str] = {}
    members: list[tuple[str, bytes]] = []
    for name in _DTYPES:
        column = _column(workload, name)
        if column is None:
            continue
        stored, columns[name] = _narrowed(column)
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, stored, version=(1, 0), allow_pickle=False)
        members.append((f"{name}.npy", buffer.getvalue()))
    index = {
        "schema": SCHEMA_VERSION,
        "name": workload.name,
        "hash_block_tokens": workload.hash_block_tokens,
        "agents": list(workload.agents),
        "workflow_names": _names_out(workload.workflow_names),
        "columns": columns,
        "provenance": workload.provenance,
    }
    if workload.transcript is not None:
        index["block_names"] = list(workload.transcript.block_names)
    if workload.branches is not None:
        index["drafters"] = list(workload.branches.drafters)
    text = json.dumps(index, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    write_whole(path, _zipped([(_INDEX, text.encode()), *members]))


def open(path: Path) -> Workload:
    """Read a workload that `save` wrote; InputError when it is damaged, oversized or inconsistent."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {i.filename: i.file_size for i in archive.infolist()}
            if sum(sizes.values()) > MAX_FILE_BYTES:
                raise InputError(f"{path}: content is larger than {MAX_FILE_BYTES >> 30} GiB")
            index = _read_index(archive, path)
            expected = {f"{c}.npy" for c in index["columns"]} | {_INDEX}
            if set(sizes) != expected or len(archive.infolist()) != len(sizes):
                odd = sorted(set(sizes) ^ expected)
                raise InputError(
                    f"{path}: member {shown(odd[0] if odd else _INDEX)} is missing, extra or given twice"
                )
            columns = {c: _read_column(archive, path, c, coding) for c, coding in index["columns"].items()}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as e:
        raise InputError(f"{path}: damaged workload file: {' '.join(str(e).split())[:80]}") from None
    except OSError as e:
        raise InputError(f"{path}: {e.strerror or e}") from None
    tree = PrefixTree(*(columns.pop(f"prefix.{f}") for f in ("parent_segment", "start_tokens", "end_tokens")))
    parts = {name.partition(".")[2]: columns.pop(name) for name in _TRANSCRIPT if name in columns}
    transcript = Transcript(block_names=tuple(index["block_names"]), **parts) if parts else None
    for name in _OPTIONAL - set(_TRANSCRIPT):
        columns.setdefault(name, None)
    branches = None
    given = {name: columns.pop(f"branches.{name}") for name in DTYPES if f"branches.{name}" in columns}
    if given:
        try:
            branches = from_columns(given, tuple(index["drafters"]))
        except ValueError:
            raise InputError(
                f"{at(path, field='option_score')}: one row a drafter, one column an option"
            ) from None
    workload = Workload(
        name=index["name"],
        workflow_names=_names_in(index["workflow_names"]),
        agents=tuple(index["agents"]),
        prefix=tree,
        hash_block_tokens=index["hash_block_tokens"],
        transcript=transcript,
        provenance=index["provenance"],
        branches=branches,
        **columns,
    )
    errors = workload.errors()
    if errors:
        raise InputError(f"{path}: {errors[0]}")
    return workload


def write_whole(path: Path, content: bytes) -> None:
    """Write a file aside and rename it, so that a reader never sees half of it; InputError when it cannot."""
    try:
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(aside, 0o644)
            os.replace(aside, path)
        except BaseException:
            os.unlink(aside)
            raise
    except OSError as e:
        raise InputError(f"{path}: cannot write: {e.strerror}") from None


def _column(workload: Workload, name: str) -> NDArray[Any] | None:
    part, dot, inner = name.partition(".")
    owner: object = getattr(workload, part) if dot else workload
    if owner is None:
        return None
    column: NDArray[Any] | None = getattr(owner, inner or name)
    bits = _AS_BITS.get(_DTYPES[name])
    return column if column is None or bits is None else np.ravel(column).view(bits)


def _narrowed(column: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """Return (values in the narrowest type, coding): "plain", or "delta" where differences are narrower."""
    plain = _narrowest(column)
    if len(column) < 2:
        return plain, "plain"
    wide = column.astype(np.int64)
    low, high = int(wide.min()), int(wide.max())
    if high - low > 2**62:  # differences might wrap
        return plain, "plain"
    delta = _narrowest(np.diff(wide, prepend=0))
    return (delta, "delta") if delta.itemsize < plain.itemsize else (plain, "plain")


def _narrowest(column: NDArray[Any]) -> NDArray[Any]:
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    for kind in ("<i1", "<u1", "<i2", "<u2", "<i4", "<u4", "<i8"):
        limits = np.iinfo(kind)
        if limits.min <= low and high <= limits.max:
            return column.astype(kind)
    raise InputError(f"a value of {high} does not fit 64 bits")


def _names_out(names: tuple[str, ...]) -> list[str] | int:
    """Return the names, or their number where they just count from 0."""
    return len(names) if names == tuple(map(str, range(len(names)))) else list(names)


def _names_in(names: list[str] | int) -> tuple[str, ...]:
    return tuple(map(str, range(names))) if isinstance(names, int) else tuple(names)


def _zipped(members: list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    return buffer.getvalue()


def _read_member(archive: zipfile.ZipFile, path: Path, name: str, limit_bytes: int) -> bytes:
    with archive.open(name) as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise InputError(f"{path}: member {name!r} is larger than {limit_bytes} bytes")
    return content


def _read_index(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    if _INDEX not in archive.namelist():
        raise InputError(f"{path}: no member {_INDEX!r}: not a workload file")
    try:
        index = json.loads(_read_member(archive, path, _INDEX, _MAX_INDEX_BYTES))
    except (ValueError, RecursionError):
        raise InputError(f"{path}: member {_INDEX!r} is not JSON") from None
    if not isinstance(index, dict) or index.get("schema") != SCHEMA_VERSION:
        got = shown(index.get("schema")) if isinstance(index, dict) else "no object"
        raise InputError(f"{at(path, field='schema')}: got {got}, this version reads {SCHEMA_VERSION}")
    count = index.get("workflow_names")
    sound = {
        "name": isinstance(index.get("name"), str),
        "hash_block_tokens": type(index.get("hash_block_tokens")) is int and index["hash_block_tokens"] > 0,
        "agents": _is_texts(index.get("agents")),
        "workflow_names": _is_texts(count) or (type(count) is int and 0 <= count < 2**31),
        "provenance": isinstance(index.get("provenance"), dict),
        "columns": isinstance(index.get("columns"), dict)
        and set(_DTYPES) - _OPTIONAL - _BRANCH <= set(index["columns"]) <= set(_DTYPES)
        and len(set(_TRANSCRIPT) - set(index["columns"])) in (0, len(_TRANSCRIPT))
        and set(index["columns"]) & _BRANCH in (set(), _BRANCH)
        and all(c in ("plain", "delta") for c in index["columns"].values()),
    }
    if sound["columns"] and set(_TRANSCRIPT) <= set(index["columns"]):
        sound["block_names"] = _is_texts(index.get("block_names"))
    if sound["columns"] and set(index["columns"]) >= _BRANCH:
        sound["drafters"] = _is_texts(index.get("drafters"))
    for field, ok in sound.items():
        if not ok:
            raise InputError(
                f"{at(path, field=field)}: got {shown(index.get(field))}, not what a workload has"
            )
    return index


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _read_column(archive: zipfile.ZipFile, path: Path, name: str, coding: str) -> Any:
    dtype = np.dtype(_DTYPES[name])
    stored_as = np.dtype(_AS_BITS.get(_DTYPES[name], _DTYPES[name]))
    content = _read_member(archive, path, f"{name}.npy", MAX_FILE_BYTES)
    try:
        stored = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, MemoryError):
        raise InputError(f"{at(path, field=name)}: damaged column") from None
    if stored.ndim != 1 or stored.dtype.kind not in "iu":
        raise InputError(f"{at(path, field=name)}: expected a column of whole numbers")
    with np.errstate(over="ignore"):
        wide = np.cumsum(stored, dtype=np.int64) if coding == "delta" else stored.astype(np.int64)
    limits: Any = np.iinfo(stored_as)
    if len(wide) and (int(wide.min()) < limits.min or int(wide.max()) > limits.max):
        raise InputError(f"{at(path, field=name)}: a value does not fit {stored_as.name}")
    if dtype.kind == "b" and len(wide) and (int(wide.min()) < 0 or int(wide.max()) > 1):
        raise InputError(f"{at(path, field=name)}: expected 0 or 1")
    return wide.astype(stored_as).view(dtype)
