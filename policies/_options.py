"""Options of a policy, or of a host: dataclass fields, and how texts of a command line become their values."""

from __future__ import annotations

import inspect
import math
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from traces.errors import InputError, nearest

T = TypeVar("T")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_NONE = ("none", "null")


def describe(cls: type[Any]) -> dict[str, tuple[Any, Any, str]]:
    """Return {option: (type, default, doc)}; the default is MISSING where there is none."""
    hints = get_type_hints(cls)
    out = {}
    for f in fields(cls):
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        out[f.name] = (hints[f.name], default, str(f.metadata.get("doc", _doc(cls, f.name))))
    return out


def build(cls: type[T], given: Mapping[str, object], what: str, prefix: str) -> T:
    """Return `cls(**given)` with every value made to fit its field.

    what: how the policy was selected, for messages. prefix: the options' prefix on the command line.
    """
    known = describe(cls)
    values = {}
    for name, value in given.items():
        if name not in known:
            raise InputError(nearest(name, known, what=f"option of {what}"))
        values[name] = coerce(value, known[name][0], f"{prefix}.{name}")
    for name, (kind, default, _) in known.items():
        if default is MISSING and name not in values:
            raise InputError(f"{what}: option {prefix}.{name} ({type_name(kind)}) must be given")
    try:
        return cls(**values)
    except InputError as e:
        raise InputError(f"{what}: {e}") from None
    except (ValueError, TypeError) as e:
        raise InputError(f"{what}: {e}") from e


def coerce(value: object, kind: Any, where: str) -> Any:
    """Return `value` as the type `kind`: int, float, bool, str, None, a Literal, or a union of those.

    >>> coerce("8", int, "x"), coerce("none", int | None, "x"), coerce(2, float, "x")
    (8, None, 2.0)
    """
    for part in _parts(kind):
        ok, made = _fit(value, part)
        if ok:
            return made
    if get_origin(kind) is Literal:
        raise InputError(nearest(str(value), map(str, get_args(kind)), what=where))
    raise InputError(f"{where}={value!r}: expected {type_name(kind)}")


def type_name(kind: Any) -> str:
    """Return a type as a user would write it.

    >>> type_name(int | None)
    'int or none'
    """
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    parts = sorted(_parts(kind), key=lambda p: p is types.NoneType)
    return " or ".join("none" if p is types.NoneType else getattr(p, "__name__", str(p)) for p in parts)


def _parts(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) in (Union, types.UnionType):
        # A text could be anything, so it is the last resort; "none" is the first.
        order = {types.NoneType: 0, bool: 1, int: 2, float: 3, str: 5}
        return tuple(sorted(get_args(kind), key=lambda k: order.get(k, 4)))
    return (kind,)


def _fit(value: object, kind: Any) -> tuple[bool, Any]:
    text = value.strip() if isinstance(value, str) else None
    if kind is types.NoneType:
        return value is None or (text is not None and text.lower() in _NONE), None
    if get_origin(kind) is Literal:
        for allowed in get_args(kind):
            ok, made = _fit(value, type(allowed))
            if ok and made == allowed:
                return True, allowed
        return False, None
    if kind is bool:
        if isinstance(value, bool):
            return True, value
        word = (text or "").lower()
        return word in _TRUE + _FALSE, word in _TRUE
    if kind is int:
        return _whole(value if text is None else text)
    if kind is float:
        return _real(value if text is None else text)
    if kind is str:
        return isinstance(value, str), value
    return inspect.isclass(kind) and isinstance(value, kind), value


def _whole(value: object) -> tuple[bool, int]:
    if isinstance(value, str):
        return (True, int(value)) if re.fullmatch(r"[+-]?\d+(_\d+)*", value) else (False, 0)
    if isinstance(value, float) and value.is_integer():
        return True, int(value)
    return (True, value) if isinstance(value, int) and not isinstance(value, bool) else (False, 0)


def _real(value: object) -> tuple[bool, float]:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False, 0.0
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return False, 0.0
    return not math.isnan(number), number


def _doc(cls: type[Any], option: str) -> str:
    """Return the class docstring's line `option   text` on the option, with the deeper lines after it."""
    lines = inspect.cleandoc(cls.__doc__ or "").splitlines()
    for i, line in enumerate(lines):
        match = re.match(rf"{re.escape(option)}\s{{2,}}(\S.*)", line)
        if match:
            text = [match.group(1)]
            for more in lines[i + 1 :]:
                if not more.startswith("  "):
                    break
                text.append(more.strip())
            return " ".join(text)
    return ""
