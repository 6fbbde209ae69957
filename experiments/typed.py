"""Build a frozen dataclass from plain data, strictly: what is unknown or of the wrong kind is one line."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from traces.errors import InputError, nearest

T = TypeVar("T")

_SAID = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}


def build(cls: type[T], values: Mapping[str, Any], group: str = "") -> T:
    """Return `cls(**values)`, nested dataclasses included.

    group: dotted place of `values` in the configuration, "" at the top. Raises InputError for an unknown name
    (with the nearest one), a value of the wrong kind, and what the dataclass itself refuses.
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for name, value in values.items():
        place = f"{group}.{name}" if group else str(name)
        if name not in fields:
            raise InputError(nearest(str(name), fields, what=f"option of {group}" if group else "option"))
        given[name] = _value(fields[name], value, place)
    return cls(**given)


def leaves(cls: type[Any], group: str = "") -> dict[str, Any]:
    """Return dotted option name -> type hint of every leaf of a dataclass of options."""
    hints = typing.get_type_hints(cls)
    out: dict[str, Any] = {}
    for f in dataclasses.fields(cls):
        place = f"{group}.{f.name}" if group else f.name
        if dataclasses.is_dataclass(hints[f.name]):
            out |= leaves(hints[f.name], place)
        else:
            out[place] = hints[f.name]
    return out


def flat(value: Any, group: str = "") -> dict[str, Any]:
    """Return dotted option name -> value of every leaf of an instance of a dataclass of options."""
    out: dict[str, Any] = {}
    for f in dataclasses.fields(value):
        place = f"{group}.{f.name}" if group else f.name
        item = getattr(value, f.name)
        out |= flat(item, place) if dataclasses.is_dataclass(item) else {place: item}
    return out


def _value(hint: Any, value: Any, place: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise InputError(f"{place}={value}: a group of options; set one as {place}.NAME=VALUE")
        return build(typing.cast(type[Any], hint), value, place)
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise InputError(f"{place}={value}: expected a list, [{_said((item,))}, ...]")
        return tuple(_value(item, v, place) for v in value)
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for kind in kinds:
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if kind is bool and isinstance(value, bool):
            return value
        if isinstance(value, kind) and not isinstance(value, bool):
            return value
    raise InputError(f"{place}={_shown(value)}: expected {_said(kinds)}")


def _said(kinds: tuple[Any, ...]) -> str:
    return " or ".join(_SAID.get(k, str(k)) for k in kinds)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
