"""`python -m policies list`, `python -m policies check evictor=NAME ...`: policies from the command line."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from policies import registry
from policies._options import type_name
from policies.api import FAMILIES, OPTION
from policies.laws import check
from traces.errors import InputError, nearest

USAGE = """usage:
  python -m policies list [FAMILY] [policy_path=DIR]
      names, labels and options of the policies (all families when none is named)
  python -m policies check [policy_path=DIR] OPTION=NAME [OPTION.FIELD=VALUE ...] [seeds=N]
      run the conformance laws, for example: check policy_path=my evictor=mine evictor.depth=3
OPTION is one of """ + ", ".join(sorted(OPTION.values()))

_FAMILY = {option: family for family, option in OPTION.items()}


def main(arguments: Sequence[str]) -> int:
    """Run one command; return the exit status: 0 kept, 1 a law is broken, 2 bad input."""
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(USAGE)
            return 0 if arguments else 2
        command, rest = arguments[0], arguments[1:]
        if command == "list":
            return _list(rest)
        if command == "check":
            return _check(rest)
        raise InputError(nearest(command, ("list", "check"), what="command"))
    except InputError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2


def _list(arguments: Sequence[str]) -> int:
    values = dict(_pair(a) for a in arguments if "=" in a)
    families = [a for a in arguments if "=" not in a]
    for family in families:
        if family not in FAMILIES:
            raise InputError(nearest(family, FAMILIES, what="policy family"))
    path = _folder(values.pop("policy_path", None))
    if values:
        raise InputError(nearest(next(iter(values)), ["policy_path"], what="option of list"))
    for family in families or FAMILIES:
        print(f"{family} ({OPTION[family]}=...)")
        for name in registry.names(family, path):
            cls = registry.find(family, name, path)
            needs = f"   needs {', '.join(sorted(cls.needs))}" if cls.needs else ""
            print(f"  {name:16} {cls.label}{needs}")
            for option, (kind, default, doc) in registry.options(family, name, path).items():
                shown = "required" if default is dataclasses.MISSING else repr(default)
                print(f"      {OPTION[family]}.{option}={shown} ({type_name(kind)})  {doc}".rstrip())
    return 0


def _check(arguments: Sequence[str]) -> int:
    path: Path | None = None
    seeds = 3
    chosen: dict[str, str] = {}
    fields: dict[str, dict[str, object]] = {}
    for argument in arguments:
        key, value = _pair(argument)
        option, _, field = key.partition(".")
        if key == "policy_path":
            path = _folder(value)
        elif key == "seeds":
            if not value.isdecimal() or not 1 <= int(value) <= 1000:
                raise InputError(f"seeds={value}: expected a whole number from 1 to 1000")
            seeds = int(value)
        elif option in _FAMILY and field:
            fields.setdefault(option, {})[field] = value
        elif option in _FAMILY:
            chosen[option] = value
        else:
            raise InputError(nearest(key, [*_FAMILY, "policy_path", "seeds"], what="option of check"))
    for option in fields:
        if option not in chosen:
            raise InputError(f"{option}.{next(iter(fields[option]))} is given, but no {option}=NAME")
    if not chosen:
        raise InputError("check needs a policy, for example evictor=lru")
    policies = [registry.load(_FAMILY[o], name, fields.get(o), path) for o, name in chosen.items()]
    status = 0
    for policy in policies:
        try:
            check(policy, range(seeds))
        except AssertionError as e:
            print(f"broken: {e}", file=sys.stderr)
            status = 1
        else:
            print(f"ok: {registry.describe(policy)} keeps the laws of {policy.family} ({seeds} seeds)")
    return status


def _pair(argument: str) -> tuple[str, str]:
    key, equals, value = argument.partition("=")
    if not equals or not key or not value:
        raise InputError(f"{argument!r}: expected OPTION=VALUE")
    return key, value


def _folder(text: str | None) -> Path | None:
    return None if text is None else Path(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
