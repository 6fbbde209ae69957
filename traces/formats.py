"""Which file is what: importers by name, found in the package (`io_<name>.py`), and by what a file holds.

An importer is a module with `read(path, **options) -> Workload` and, to be recognised without being named,
`sniff(path, head) -> bool` (head: first 64 KiB, decompressed; b"" for a folder). Adding one is adding a file.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import traces
from traces import store
from traces.errors import InputError, nearest
from traces.reading import head_bytes
from traces.schema import Workload

NATIVE = "workload"


def names() -> tuple[str, ...]:
    """Return the names of all formats that can be read, sorted."""
    found = [
        m.name.removeprefix("io_") for m in pkgutil.iter_modules(traces.__path__) if m.name.startswith("io_")
    ]
    return tuple(sorted([*found, NATIVE]))


def reader(name: str) -> Callable[..., Workload]:
    """Return the `read` function of a format; InputError with the nearest name."""
    if name not in names():
        raise InputError(nearest(name, names(), what="format"))
    if name == NATIVE:
        return store.open
    return cast(Callable[..., Workload], importlib.import_module(f"traces.io_{name}").read)


def options(name: str) -> dict[str, inspect.Parameter]:
    """Return the options of a format: the parameters of its `read` after the path."""
    parameters = list(inspect.signature(reader(name), eval_str=True).parameters.values())[1:]
    return {p.name: p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD}


def sniff(path: Path) -> str:
    """Return the name of the format a file or folder is in; InputError when none or several recognise it."""
    head = head_bytes(path)
    if store.sniff(path, head):
        return NATIVE
    found = []
    for name in names():
        if name != NATIVE:
            check = getattr(importlib.import_module(f"traces.io_{name}"), "sniff", None)
            if check is not None and check(path, head):
                found.append(name)
    if len(found) == 1:
        return found[0]
    said = "several formats fit: " + ", ".join(found) if found else "no format recognises it"
    if not head.strip() and not path.is_dir():
        raise InputError(f"{path}: empty file")
    raise InputError(f"{path}: {said}; name one of: {', '.join(names())}")


def load(path: str | Path, format: str | None = None, **given: Any) -> Workload:
    """Read a trace in a named format, or in the one its content shows. Options are the importer's.

    Options may be text, as a command line gives them; they are converted to the type the importer declares.
    Raises InputError: unknown format or option, malformed content.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file")
    name = sniff(path) if format is None else format
    read = reader(name)
    known = options(name)
    values = {}
    for option, value in given.items():
        if option not in known:
            raise InputError(nearest(option, known, what=f"option of format {name}"))
        values[option] = _converted(option, value, known[option].annotation)
    return read(path, **values)


def _converted(option: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, str) or kind is str or kind is inspect.Parameter.empty:
        return value
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in kinds and value.lower() in ("none", "null"):
        return None
    for k in kinds:
        if k is bool and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if k in (int, float):
            try:
                return k(value)
            except ValueError:
                continue
        if k is Path:
            return Path(value)
        if k is str:
            return value
    wanted = " or ".join("none" if k is type(None) else getattr(k, "__name__", str(k)) for k in kinds)
    raise InputError(f"option {option}={value[:40]!r}: expected {wanted}")
