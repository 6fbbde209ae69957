"""The predictor inside another: `markov`, `markov(order=1)`, `graphsage(model=FILE)`, as an option writes it."""

from __future__ import annotations

import re
from typing import Any, cast

from policies import registry
from policies.api import Predictor
from traces.errors import InputError

_SPEC = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\(([^()]*)\))?\s*")


def load_inner(spec: str, outer: Predictor[Any]) -> Predictor[Any]:
    """Return the predictor that `spec` names. Raises InputError for a spec that is none, and for `outer` itself."""
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise InputError(f"inner={spec}: expected a predictor's name, or name(option=value, ...)")
    options: dict[str, object] = {}
    for part in match[2].split(",") if match[2] else ():
        name, equals, value = part.partition("=")
        if not equals:
            raise InputError(
                f"inner={spec}: expected option=value inside the parentheses, got {part.strip()!r}"
            )
        options[name.strip()] = value.strip()
    own = type(outer).__module__.rpartition(".")[2]
    if match[1] == own:
        raise InputError(f"inner={own}: {own} over {own} is {own}; name another predictor")
    return cast("Predictor[Any]", registry.load("predictors", match[1], options))
