"""A user's own policies, in the folder that `policy_path=` names. Listing reads, loading runs."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from policies.api import FAMILIES
from traces.errors import InputError

_PACKAGE = "user_policies"


def names(family: str, folder: Path) -> list[str]:
    """Return the stems of `<folder>/<family>/*.py`, and of `<folder>/*.py` that derive from the family."""
    _check(folder)
    own = [p for p in (folder / family).glob("*.py") if not p.stem.startswith("_")]
    flat = [p for p in folder.glob("*.py") if not p.stem.startswith("_") and holds(p, family)]
    return sorted({p.stem for p in (*own, *flat)})


def locate(family: str, name: str, folder: Path) -> Path | None:
    """Return the file of a user's policy, None when the folder has none of that name."""
    _check(folder)
    if not name.isidentifier():
        return None
    for path in (folder / family / f"{name}.py", folder / f"{name}.py"):
        if path.is_file():
            return path
    return None


def holds(path: Path, family: str) -> bool:
    """Say, without running it, whether a file seems to define a policy of the family."""
    if path.parent.name == family:
        return True
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return False
    bases = {FAMILIES[family].__name__}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"policies.{family}"):
            bases |= {alias.asname or alias.name for alias in node.names}
    return any(
        isinstance(node, ast.ClassDef) and any(_base_name(base) in bases for base in node.bases)
        for node in tree.body
    )


def load(path: Path, family: str, name: str) -> ModuleType:
    """Run the file as a module; the same content is run once. Raises InputError naming file and line."""
    try:
        content = path.read_bytes()
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from None
    digest = hashlib.blake2b(str(path.resolve()).encode() + b"\0" + content, digest_size=6).hexdigest()
    full_name = f"{_PACKAGE}.{family}.{digest}.{name}"
    if full_name in sys.modules:
        return sys.modules[full_name]
    spec = importlib.util.spec_from_file_location(full_name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[full_name] = module  # dataclasses look their module up here
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)
    except SyntaxError as e:
        del sys.modules[full_name]
        raise InputError(f"{path}:{e.lineno}: SyntaxError: {e.msg}") from None
    except Exception as e:
        del sys.modules[full_name]
        lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == str(path)]
        raise InputError(f"{path}:{lines[-1] if lines else 1}: {type(e).__name__}: {e}") from e
    return module


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError(f"policy_path={folder}: not a folder")


def _base_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _base_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
