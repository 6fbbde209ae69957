"""The committed profiles, by name."""

from __future__ import annotations

from pathlib import Path

from policies.costs import Profile, load_profile
from traces.errors import InputError, nearest

PROFILES = Path(__file__).parent / "profiles"


def names() -> list[str]:
    """Return the names of all committed profiles, sorted."""
    return sorted(p.stem for p in PROFILES.glob("*.json"))


def open(name_or_path: str | Path) -> Profile:
    """Return a profile by name or by the path of its file; raises InputError with the nearest name."""
    text = str(name_or_path)
    committed = PROFILES / f"{text}.json"
    if "/" not in text and committed.is_file():
        return load_profile(committed)
    path = Path(text)
    if path.is_file() or path.suffix == ".json" or len(path.parts) > 1:
        return load_profile(path)
    raise InputError(_unknown(text))


def find(
    gpu: str | None = None, tp: int | None = None, model: str | None = None, precision: str | None = None
) -> list[str]:
    """Return the names of committed profiles that match everything given, sorted.

    Raises InputError naming the first value that no profile has.
    """
    wanted = {"gpu": gpu, "tp": None if tp is None else str(tp), "model": model, "precision": precision}
    rows = {name: parts(name) for name in names()}
    for field, value in wanted.items():
        allowed = {row[field] for row in rows.values()}
        if value is not None and value not in allowed:
            raise InputError(nearest(value, allowed, what=f"profile {field}"))
    return [
        name for name, row in rows.items() if all(v is None or row[field] == v for field, v in wanted.items())
    ]


def parts(name: str) -> dict[str, str]:
    """Split `<gpu>x<tp>--<model>--<precision>--<engine>`.

    >>> parts("H200x2--Qwen3-32B--bf16--vllm")["tp"]
    '2'
    """
    try:
        machine, model, precision, engine = name.split("--")
        gpu, tp = machine.rsplit("x", 1)
    except ValueError:
        raise InputError(
            f"profile {name!r}: expected <gpu>x<tp>--<model>--<precision>--<engine>, "
            "such as H200x1--Qwen3-32B--bf16--vllm"
        ) from None
    return {"gpu": gpu, "tp": tp, "model": model, "precision": precision, "engine": engine}


def _unknown(text: str) -> str:
    known = names()
    message = nearest(text, known, what="profile")
    if len(known) > 8:
        message = message.split(" allowed: ")[0].rstrip(";")
        message += f"; {len(known)} profiles: python -m calibration list"
    return message
