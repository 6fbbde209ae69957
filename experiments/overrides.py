"""Read the command line's `option=value` words: which option each names, and what it says."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.settings import EXECUTORS, GROUPS, OPTIONS
from policies.api import OPTION
from policies.spec import split
from traces.errors import InputError, nearest

CONF = Path(__file__).parent / "conf"
FAMILY = {option: family for family, option in OPTION.items()}
# Free text, taken as it stands: a file name may hold anything that a config grammar would choke on.
_TEXT = ("workload_format", "model", "store", "name", "gpu", "precision", "kv_precision")
_LISTED_TEXT = ("workload", "profile")
AXIS_MAX = 1000
_OTHER = ("experiment", "sweep", "axes", "policy_path")


@dataclass
class Given:
    """What the command line says.

    experiment, sweeps   names of config files
    values       dotted option -> value
    axes         dotted option -> values, from comma lists
    policies     option (`evictor`) -> policies as written
    policy_options   (option, policy's option) -> values
    engine_args  arguments of `vllm serve`, or None
    """

    experiment: str | None = None
    sweeps: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, list[Any]] = field(default_factory=dict)
    policies: dict[str, list[str]] = field(default_factory=dict)
    policy_options: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    engine_args: str | None = None
    policy_path: Path | None = None


def names(group: str) -> list[str]:
    """Config files of a group: `experiment` or `sweep`."""
    return sorted(p.stem for p in (CONF / group).glob("*.yaml"))


def read(words: Sequence[str]) -> Given:
    """Return what the words say; raises InputError with one line for an unknown name or a malformed value."""
    given = Given()
    seen: set[str] = set()
    for word in words:
        key, value = _cut(word)
        if key in seen:
            raise InputError(f"{key}: given twice; write {key}=A,B to compare values")
        seen.add(key)
        _read_one(given, key, value)
    return given


def _cut(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if word.startswith("~"):
        raise InputError(f"{word}: options cannot be deleted; set them to their default or to null")
    if not equals:
        raise InputError(f"{word}: expected option=value (see `python -m experiments list`)")
    if "${" in word:
        raise InputError(f"{word}: interpolations are not read from the command line; write the value itself")
    stripped = key.lstrip("+")
    if any(part.startswith("_") for part in stripped.split(".")):
        raise InputError(
            f"{word}: names that begin with '_' are no options; policies are chosen by name only"
        )
    if stripped != key and stripped != "sweep" and stripped.split(".")[0] != "axes":
        raise InputError(f"{word}: write {stripped}={value} without '+'; only +sweep=NAME adds")
    return stripped, value


def _read_one(given: Given, key: str, value: str) -> None:
    head, _, tail = key.partition(".")
    if key == "experiment":
        given.experiment = known(value, names("experiment"), "experiment")
    elif key == "sweep":
        given.sweeps = tuple(known(v, names("sweep"), "sweep") for v in split(value.strip("[]")))
    elif key == "policy_path":
        given.policy_path = _folder(value)
    elif key == "engine":
        given.engine_args = value
    elif key == "executor":
        given.values["executor.name"] = known(value, EXECUTORS, "executor")
    elif key in FAMILY:
        given.policies[key] = split(value.removeprefix("[").removesuffix("]"))
    elif head in FAMILY and tail:
        given.policy_options[head, tail] = _policy_values(key, value)
    elif key == "axes" or head == "axes":
        _read_axes(given, tail, value)
    elif key in _TEXT:
        given.values[key] = None if value == "null" else value
    elif key in _LISTED_TEXT:
        parts = [value] if Path(value).exists() else split(value)
        _store(given, key, parts)
    elif key in OPTIONS:
        parsed = parse(key, value)
        if key == "seeds":
            given.values[key] = parsed[0] if len(parsed) == 1 else parsed
        else:
            _store(given, key, parsed)
    else:
        raise InputError(unknown(key))


def _store(given: Given, key: str, values: list[Any]) -> None:
    if len(values) == 1:
        given.values[key] = values[0]
    else:
        given.axes[key] = values


def _read_axes(given: Given, tail: str, value: str) -> None:
    parsed = parse("axes", value)
    named = {tail: parsed[0] if len(parsed) == 1 else parsed} if tail else parsed[0]
    if not isinstance(named, dict):
        raise InputError(f"axes={value}: expected axes={{OPTION:[VALUE,...]}}, or simply OPTION=VALUE,VALUE")
    for name, values in named.items():
        given.axes[str(name)] = values if isinstance(values, list) else [values]


def _policy_values(key: str, value: str) -> list[Any]:
    if key.count(".") != 1:
        raise InputError(
            f"{key}={value}: a policy's options have no parts; write {key.split('.')[0]}.NAME=VALUE"
        )
    return parse(key, value)


def _folder(value: str) -> Path:
    path = Path(value)
    if not path.is_dir():
        raise InputError(f"policy_path={value}: {'not a folder' if path.exists() else 'no such folder'}")
    return path


def parse(key: str, value: str) -> list[Any]:
    """Return the value, or the values of a comma list, in Hydra's grammar (it loads slowly: only here)."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import ChoiceSweep, QuotedString, RangeSweep
    from hydra.errors import HydraException

    def plain(item: Any) -> Any:
        if isinstance(item, QuotedString):
            return item.text
        if isinstance(item, list):
            return [plain(i) for i in item]
        if isinstance(item, dict):
            return {plain(k): plain(v) for k, v in item.items()}
        return item

    try:
        # The option is known to be one already; only the value goes through the grammar.
        parsed = OverridesParser.create().parse_override(f"value={value}")._value
    except HydraException as e:
        reason = str(e).splitlines()[0]
        raise InputError(f"{key}={value}: not a value: {reason}; put quotes around text") from None
    if isinstance(parsed, ChoiceSweep):
        return [plain(i) for i in parsed.list]
    if isinstance(parsed, RangeSweep):
        values = list(itertools.islice(parsed.range(), AXIS_MAX + 1))
        if len(values) > AXIS_MAX:
            raise InputError(f"{key}={value}: more than {AXIS_MAX} values")
        return values
    if parsed is None or isinstance(parsed, int | float | str | list | dict | QuotedString):
        return [plain(parsed)]
    raise InputError(f"{key}={value}: only values, comma lists and range(start,stop,step) are read here")


def known(value: str, allowed: Iterable[str], what: str) -> str:
    """Return `value` when it is one of `allowed`; raises InputError with the nearest one otherwise."""
    if value not in set(allowed):
        raise InputError(nearest(value, allowed, what=what))
    return value


def unknown(key: str) -> str:
    """Say that `key` is no option, with the nearest ones and those of its group."""
    head = key.partition(".")[0]
    if head in GROUPS:
        allowed = sorted(o for o in OPTIONS if o.startswith(head + "."))
        return nearest(key, allowed, what="option")
    every = sorted({*OPTIONS, *FAMILY, *_OTHER, *GROUPS})
    close = difflib.get_close_matches(key, every, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ";"
    top = sorted({o for o in every if "." not in o})
    return f"unknown option {key!r}{hint} allowed: {', '.join(top)}"
