"""What the machine was when it was measured. Everything is read; no clock, limit or mode is ever set."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from typing import Any

_QUERY = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
_NAMES = ("sm_mhz", "memory_mhz", "temperature_c", "power_w")
_ONCE = (
    "name",
    "driver_version",
    "clocks.max.sm",
    "clocks.max.mem",
    "power.limit",
    "persistence_mode",
    "memory.total",
)
_PACKAGES = ("foreserve", "torch", "triton", "vllm", "numpy")


def clocks() -> dict[str, int]:
    """Return clocks in MHz, temperature and power of the first GPU; {} where nvidia-smi says nothing."""
    found = _smi(_QUERY)
    try:
        return {name: round(float(value)) for name, value in zip(_NAMES, found, strict=True)}
    except ValueError:
        return {}


def machine() -> dict[str, Any]:
    """Return CPU, GPU, driver and the versions of what takes part."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    gpu = dict(zip(_ONCE, _smi(_ONCE), strict=False))
    return {
        "cpu": platform.processor() or platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "gpu": gpu,
        "versions": versions,
    }


def _smi(fields: tuple[str, ...]) -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "--id=0"],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    return [value.strip() for value in done.stdout.strip().split(",")]
