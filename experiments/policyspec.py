"""`name(option=value, ...)`: how configs, tables and labels write a policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies import registry, spec
from policies.api import OPTION, Policy
from traces.errors import InputError, nearest


@dataclass(frozen=True)
class Choice:
    """One policy as it was asked for: family, name, and the options given (text or plain values)."""

    family: str
    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def load(self, policy_path: Path | None) -> Policy[Any]:
        """Return the policy; raises InputError with the nearest name for what does not exist."""
        return registry.load(self.family, self.name, dict(self.options), policy_path)

    def having(self, options: Iterable[tuple[str, Any]]) -> Choice:
        """Return this choice with `options` set on top."""
        return dataclasses.replace(self, options=tuple((dict(self.options) | dict(options)).items()))


def parse(family: str, text: str) -> Choice:
    """Read `name` or `name(option=value, ...)`.

    >>> parse("evictors", "lifecycle(window=3)").options
    (('window', '3'),)
    """
    name, options = spec.parse(text, OPTION[family])
    return Choice(family, name, tuple(options.items()))


def written(choice: Choice, policy: Policy[Any], policy_path: Path | None) -> str:
    """Return the policy's name and those of its options that are not at their defaults.

    Does not depend on how the options were asked for: equal policies are written alike.
    """
    defaults = registry.options(choice.family, choice.name, policy_path)
    shown = [
        f"{f.name}={_text(getattr(policy, f.name))}"
        for f in dataclasses.fields(policy)
        if f.name in defaults and getattr(policy, f.name) != defaults[f.name][1]
    ]
    return f"{choice.name}({', '.join(shown)})" if shown else choice.name


def check_option(choices: Iterable[Choice], option: str, policy_path: Path | None) -> list[Choice]:
    """Return those of the choices whose policy has `option`; raises InputError when none has."""
    allowed: set[str] = set()
    having = []
    choices = list(choices)
    for choice in choices:
        known = registry.options(choice.family, choice.name, policy_path)
        allowed |= set(known)
        if option in known:
            having.append(choice)
    if not having:
        names = "/".join(dict.fromkeys(c.name for c in choices))
        raise InputError(nearest(option, allowed, what=f"option of {OPTION[choices[0].family]} {names}"))
    return having


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
