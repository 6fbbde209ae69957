"""What makes two runs the same run: everything that can change its tables, and nothing else."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from policies.api import Policy
from policies.costs import Profile
from policies.registry import source_digest
from sim.config import SimConfig

ROOT = Path(__file__).resolve().parent.parent
# The code that a run executes. Metrics, figures and documents are not in it: changing them loses no sweep.
_PACKAGES = ("sim", "policies", "traces")
_FILES = ("experiments/job.py", "experiments/inputs.py")
_LIBRARIES = ("numpy", "simpy", "pyarrow")


def run_id(
    config: SimConfig,
    policies: Mapping[str, Policy[Any]],
    workload_digest: str,
    profile_digest: str,
    kv_blocks: int,
) -> str:
    """Return 20 hex digits that name the run; equal ids promise byte-identical tables.

    policies: family -> policy; their options and source files count, the folder they came from does not.
    """
    body = {
        "config": dataclasses.asdict(config),
        "policies": {
            family: [type(p).__qualname__, dataclasses.asdict(p), source_digest(p)]
            for family, p in policies.items()
        },
        "workload": workload_digest,
        "profile": profile_digest,
        "kv_blocks": kv_blocks,
        "sources": sources_digest(),
        "versions": {name: importlib.metadata.version(name) for name in _LIBRARIES},
    }
    text = json.dumps(body, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def profile_digest(profile: Profile) -> str:
    """Return a hex digest of the numbers a run uses; a reworded provenance or a stated error loses no sweep."""
    body = dataclasses.asdict(profile)
    for name in ("provenance", "error", "posterior", "bands"):
        body.pop(name, None)
    return hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).hexdigest()


@functools.cache
def sources_digest() -> str:
    """Return a hex digest of the Python sources that a run executes."""
    h = hashlib.blake2b(digest_size=16)
    paths = [p for package in _PACKAGES for p in (ROOT / package).rglob("*.py")]
    for path in sorted([*paths, *(ROOT / name for name in _FILES)]):
        h.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return h.hexdigest()


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of every library the base install needs."""
    import platform

    out = {"python": platform.python_version()}
    for name in (
        "foreserve",
        "simpy",
        "numpy",
        "scipy",
        "pandas",
        "pyarrow",
        "matplotlib",
        "hydra-core",
        "tqdm",
    ):
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            out[name] = "absent"
    return out


@functools.cache
def git() -> dict[str, str]:
    """Return the commit of a checkout and a digest of what differs from it ("" when clean); {} elsewhere."""
    sha = _git("rev-parse", "HEAD")
    if sha is None:
        return {}
    diff = _git("diff", "HEAD", "--", "*.py", "*.yaml", "*.json") or ""
    digest = hashlib.blake2b(diff.encode(), digest_size=8).hexdigest() if diff else ""
    return {"sha": sha.strip(), "diff_digest": digest}


def _git(*arguments: str) -> str | None:
    if not (ROOT / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
