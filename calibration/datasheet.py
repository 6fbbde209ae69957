"""GPUs that are not listed, from a datasheet: a JSON file of the few rates that a roofline needs."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

from calibration import gpus
from calibration.gpus import GPUS, Gpu
from calibration.json_object import load_object
from traces.errors import InputError, at, nearest

# Field of the file: the least value allowed.
_WHOLE = {
    "memory_bytes": 1,
    "bandwidth_bytes_per_s": 1,
    "bf16_flops_per_s": 1,
    "fp8_flops_per_s": 0,
    "pcie_bytes_per_s": 1,
}
# Beyond any machine: a slip of units, and too much for a division of floats.
_MOST = 10**20
_FIELDS = ("name", *_WHOLE, "nvlink", "like")
# Parts of a profile's name are joined by "--", and an "x" and the TP size follow the GPU.
_NAME = re.compile(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+)*")


def is_file(given: str) -> bool:
    """Say whether `given` means a datasheet file and not a listed GPU's name."""
    return given.endswith(".json")


def gpu(given: str) -> Gpu:
    """Return the GPU of a datasheet file (`*.json`) or of a listed name; raises InputError, one line."""
    return load(given) if is_file(given) else gpus.gpu(given)


def load(path: str | Path) -> Gpu:
    """Return the GPU that a datasheet file describes.

    name                    a new name, of letters and digits, '.', '_' or '-' between them
    memory_bytes            total memory the runtime reports
    bandwidth_bytes_per_s   of the GPU's memory
    bf16_flops_per_s        dense, FP32 accumulation
    fp8_flops_per_s         dense; 0 where the GPU has none
    pcie_bytes_per_s        effective host link, one direction
    nvlink                  optional: whether the GPUs of a server reach each other over NVLink, else false
    like                    optional: the listed GPU whose efficiency stands in; else the one whose memory
                            bandwidth is nearest by ratio

    Raises InputError, one line, that names file, field and what is allowed.
    """
    path = Path(path)
    body = load_object(path, f"a GPU datasheet is a JSON object with {', '.join(_FIELDS[:-2])}")
    for field in body:
        if field not in _FIELDS:
            raise InputError(f"{path}: {nearest(field, _FIELDS, what='datasheet field')}")
    name = _text(path, body, "name")
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{at(path, field='name')}: got {name!r}, expected letters and digits with single '.', '_' or '-' between"
        )
    if name.upper() in GPUS:
        raise InputError(f"{at(path, field='name')}: {name!r} is a listed GPU: choose another name")
    whole = {field: _whole(path, body, field, low) for field, low in _WHOLE.items()}
    nvlink = body.get("nvlink", False)
    if not isinstance(nvlink, bool):
        raise InputError(f"{at(path, field='nvlink')}: got {nvlink!r}, expected true or false")
    return Gpu(
        key=name,
        title=f"{name} (datasheet file {path.name})",
        memory_bytes=whole["memory_bytes"],
        bytes_per_s=whole["bandwidth_bytes_per_s"],
        bf16_flop_per_s=whole["bf16_flops_per_s"],
        fp8_flop_per_s=whole["fp8_flops_per_s"],
        pcie_gen=0,
        pcie_bytes_per_s=whole["pcie_bytes_per_s"],
        nvlink=nvlink,
        nearest=_like(path, body, whole["bandwidth_bytes_per_s"]),
        datasheet=path.name,
    )


def _text(path: Path, body: dict[str, Any], field: str) -> str:
    if field not in body:
        raise InputError(f"{at(path, field=field)}: missing")
    value = body[field]
    if not isinstance(value, str):
        raise InputError(f"{at(path, field=field)}: got {value!r}, expected text")
    return value


def _whole(path: Path, body: dict[str, Any], field: str, low: int) -> int:
    if field not in body:
        raise InputError(f"{at(path, field=field)}: missing")
    value = body[field]
    # 4.8e12 is how people write rates: a float that is whole is taken.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{at(path, field=field)}: got {value!r}, expected a whole number of at least {low}")
    if value > _MOST:
        raise InputError(
            f"{at(path, field=field)}: got a number of {len(str(value))} digits, expected at most 10^20"
        )
    return value


def _like(path: Path, body: dict[str, Any], bytes_per_s: int) -> str:
    if "like" in body:
        name = _text(path, body, "like")
        if name not in GPUS:
            raise InputError(f"{at(path, field='like')}: {nearest(name, GPUS, what='gpu')}")
        return GPUS[name].tables or GPUS[name].nearest
    known = [g for g in GPUS.values() if g.tables]
    return min(known, key=lambda g: _ratio(g.bytes_per_s, bytes_per_s)).tables


def _ratio(a: int, b: int) -> Fraction:
    return Fraction(max(a, b), min(a, b))
