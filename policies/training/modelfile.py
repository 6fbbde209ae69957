"""A trained predictor on disk: `NAME.safetensors` with its tensors and `NAME.json`, the card, with what made it.

The tensor file has the safetensors layout (8 bytes of header length, a JSON header, the data), read and written here:
nothing is unpickled and nothing needs an extra. The card holds the digest of the tensor file, and a file that was
changed, or a card beside another model, is refused.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError, at
from traces.store import write_whole

FORMAT = "foreserve-predictor"
VERSION = 1
SUFFIX = ".safetensors"
_MAX_TENSOR_BYTES = 64 << 20
_MAX_CARD_BYTES = 1 << 20
_MAX_AGENTS = 65_536
_DTYPES: dict[str, str] = {"F32": "<f4", "I32": "<i4", "I64": "<i8"}

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Card:
    """What a model says of itself.

    predictor    the policy it belongs to
    agents       names; a tensor's agent axis follows them
    spec         sizes the network is built from
    trained_on   workload, its digest, split and seeds
    cost_ps      measured inference: `batch` ps a batch and `workflow` ps a workflow of it; empty: not measured
    """

    predictor: str
    agents: tuple[str, ...]
    spec: dict[str, int] = field(default_factory=dict)
    trained_on: dict[str, Any] = field(default_factory=dict)
    cost_ps: dict[str, int] = field(default_factory=dict)


def paths(model: str | Path) -> tuple[Path, Path]:
    """Return the files of a model, (tensors, card); raises InputError for another suffix."""
    path = Path(model)
    if path.suffix != SUFFIX:
        raise InputError(f"model={model}: expected a file name that ends in {SUFFIX}")
    return path, path.with_suffix(".json")


def save(model: str | Path, card: Card, tensors: Mapping[str, NDArray[Any]]) -> str:
    """Write both files, each whole or not at all, the card last; return the digest of the tensors."""
    path, card_path = paths(model)
    content = encode(tensors)
    digest = _digest(content)
    body = {"format": FORMAT, "version": VERSION, **asdict(card), "digest": digest}
    text = json.dumps(body, indent=1, sort_keys=True, allow_nan=False) + "\n"
    write_whole(path, content)
    write_whole(card_path, text.encode())
    return digest


def load(model: str | Path) -> tuple[Card, Tensors]:
    """Read a model. Raises InputError when a file is missing, damaged, oversized, or not the card's."""
    path, card_path = paths(model)
    stamps = tuple(_stamp(p) for p in (path, card_path))
    card, tensors = _load(path, card_path, stamps)
    return card, dict(tensors)


def cost_ps(model: str | None, workflows: int) -> int:
    """Return what the model's card was measured to take for a batch, in ps; 0 without a model or a measurement."""
    if model is None:
        return 0
    cost = load(model)[0].cost_ps
    return cost.get("batch", 0) + cost.get("workflow", 0) * workflows if cost else 0


def encode(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Return a safetensors file; names in sorted order, so that equal tensors give equal bytes."""
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    offset = 0
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name])
        code = next((c for c, d in _DTYPES.items() if np.dtype(d) == value.dtype), None)
        if code is None:
            raise InputError(f"tensor {name!r}: {value.dtype}, allowed: float32, int32, int64")
        data = value.astype(_DTYPES[code]).tobytes()
        header[name] = {
            "dtype": code, "shape": list(value.shape), "data_offsets": [offset, offset + len(data)],
        }  # fmt: skip
        parts.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def decode(content: bytes, path: Path) -> Tensors:
    """Return the tensors of a safetensors file; InputError for anything but what `encode` may write."""
    size = int.from_bytes(content[:8], "little") if len(content) >= 8 else -1
    if not 2 <= size <= len(content) - 8:
        raise InputError(f"{path}: no safetensors file (header length {size})")
    header = _json(content[8 : 8 + size], path)
    data = memoryview(content)[8 + size :]
    out: Tensors = {}
    covered = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, offsets = (_field(entry, key, path, name) for key in ("dtype", "shape", "data_offsets"))
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise InputError(f"{at(path, field=name)}: dtype {dtype!r}, allowed: {', '.join(_DTYPES)}")
        if not (_wholes(shape) and _wholes(offsets) and len(offsets) == 2 and len(shape) <= 8):
            raise InputError(f"{at(path, field=name)}: shape or data_offsets are not whole numbers")
        kind = np.dtype(_DTYPES[dtype])
        start, stop = offsets
        if not start <= stop <= len(data) or stop - start != math.prod(shape) * kind.itemsize:
            raise InputError(f"{at(path, field=name)}: data_offsets do not hold {dtype}{shape}")
        value = np.frombuffer(data[start:stop], dtype=kind).reshape(shape).copy()
        if kind.kind == "f" and not np.isfinite(value).all():
            raise InputError(f"{at(path, field=name)}: a value is not finite")
        covered += stop - start
        out[name] = value
    if covered != len(data):
        raise InputError(f"{path}: {len(data)} bytes of data, of which tensors name {covered}")
    return out


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError as e:
        raise InputError(
            f"model {path}: {e.strerror}; train one with `python -m experiments train`"
        ) from None
    return stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=8)
def _load(path: Path, card_path: Path, stamps: tuple[tuple[int, int], ...]) -> tuple[Card, Tensors]:
    del stamps  # part of the key: a file written again is read again
    content = _read(path, _MAX_TENSOR_BYTES)
    card, digest = _card(_json(_read(card_path, _MAX_CARD_BYTES), card_path), card_path)
    if digest != _digest(content):
        raise InputError(f"{path}: its digest is {_digest(content)}, {card_path.name} says {digest}")
    return card, decode(content, path)


def _read(path: Path, limit_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(limit_bytes + 1)
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from None
    if len(content) > limit_bytes:
        raise InputError(f"{path}: larger than {limit_bytes >> 20} MiB")
    return content


def _card(body: dict[str, Any], path: Path) -> tuple[Card, str]:
    if body.get("format") != FORMAT or body.get("version") != VERSION:
        raise InputError(f"{at(path, field='format')}: expected {FORMAT} version {VERSION}")
    agents = body.get("agents")
    sound = {
        "predictor": isinstance(body.get("predictor"), str),
        "agents": isinstance(agents, list)
        and len(agents) <= _MAX_AGENTS
        and all(isinstance(a, str) for a in agents)
        and len(set(agents)) == len(agents),
        "spec": _counts(body.get("spec")),
        "trained_on": isinstance(body.get("trained_on"), dict),
        "cost_ps": _counts(body.get("cost_ps")),
        "digest": isinstance(body.get("digest"), str),
    }
    for name, ok in sound.items():
        if not ok:
            raise InputError(f"{at(path, field=name)}: not what a predictor's card has")
    card = Card(body["predictor"], tuple(body["agents"]), body["spec"], body["trained_on"], body["cost_ps"])
    return card, body["digest"]


def _json(content: bytes, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError(f"{path}: damaged JSON") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a JSON object")
    return value


def _field(entry: object, key: str, path: Path, name: str) -> Any:
    if not isinstance(entry, dict) or key not in entry:
        raise InputError(f"{at(path, field=name)}: no {key!r}")
    return entry[key]


def _wholes(value: object) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 1 << 40 for v in value)


def _counts(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(k, str) and type(v) is int and 0 <= v < 1 << 60 for k, v in value.items()
    )


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
