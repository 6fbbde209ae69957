"""Compose what is compared: config files through Hydra, the command line's words on top, all of it checked.

Hydra merges; it never runs. No string of a config is instantiated or interpolated; policies go by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments import settings as options
from experiments.contradiction import check_models
from experiments.overrides import CONF, FAMILY, Given, read, unknown
from experiments.policyspec import Choice, check_option, parse
from experiments.settings import OPTIONS, Settings
from policies import registry
from policies.registry import SIMPLEST
from policies.spec import split
from traces.errors import InputError, nearest

DEFAULT_EXPERIMENT = "main"


@dataclass(frozen=True)
class Composed:
    """A checked comparison before it meets workloads and profiles.

    values      nested options without policies and axes, as `experiments.settings.settings` reads them
    axes        dotted option -> values, in order
    policies    family -> the choices compared (one, where the arms agree), of every family
    arms        sets of such choices, when a config lists its arms rather than crossing families; else `policies` alone
    policy_path folder of the user's own policies
    notes       what the reader must know
    """

    values: dict[str, Any]
    axes: dict[str, list[Any]]
    policies: dict[str, list[Choice]]
    policy_path: Path | None
    notes: tuple[str, ...] = ()
    arms: tuple[dict[str, list[Choice]], ...] = ()

    def settings(self, point: Mapping[str, Any]) -> Settings:
        """Return the checked options at one point of the axes."""
        values = nested_copy(self.values)
        for name, value in point.items():
            put(values, name, value)
        return options.settings(values)


def compose(words: Sequence[str], experiment: str = DEFAULT_EXPERIMENT) -> Composed:
    """Return the comparison that the words name; raises InputError with one line for what cannot be."""
    given = read(words)
    values = _merged(given, experiment)
    axes = {str(k): v for k, v in (values.pop("axes", None) or {}).items()}
    arms = _arms(values.pop("arms", None))
    policies = {option: _listed(values.pop(option)) for option in FAMILY if values.get(option) is not None}
    for option in FAMILY:
        values.pop(option, None)
    notes: tuple[str, ...] = ()
    engine_model = None
    if given.engine_args is not None:
        notes, engine_model = _engine_args(given, values)
    check_models(given.values, given.axes, engine_model)
    for name, value in given.values.items():
        put(values, name, value)
    policies |= given.policies
    for name, several in given.axes.items():
        axes.pop(name, None)
        axes[name] = several
    for name in given.values:
        axes.pop(name, None)
    chosen = {*given.policies, *(n for n in axes if n in FAMILY)}
    for name in [n for n in axes if n in FAMILY]:
        if name not in given.policies:
            policies[name] = _listed(axes[name])
        del axes[name]
    policy_options = {(o, n): v for (o, n), v in given.policy_options.items()}
    for name in [n for n in axes if n.partition(".")[0] in FAMILY]:
        head, _, tail = name.partition(".")
        policy_options.setdefault((head, tail), axes[name])
        del axes[name]
    for name, several in axes.items():
        if (
            name not in OPTIONS
            or name in ("seeds", "profile_draws", "store", "name")
            or name.startswith(("executor.", "slo."))
        ):
            raise InputError(
                f"axes: {unknown(name)}" if name not in OPTIONS else f"axes: {name} cannot be swept"
            )
        if not isinstance(several, list) or not several:
            raise InputError(f"axes.{name}={several}: expected a list of values")
    composed = Composed(values, axes, {}, given.policy_path, notes)
    composed.settings({})
    # A family named on the command line or swept is compared in full: the listed arms then say nothing of it.
    arms = [{o: p for o, p in arm.items() if o not in chosen} for arm in arms] or [{}]
    sets = [_choices(policies | arm, {}, given.policy_path) for arm in arms]
    for head, name in policy_options:
        check_option([c for s in sets for c in s[FAMILY[head]]], name, given.policy_path)
    sets = []
    for arm in arms:
        made = policies | arm
        having = {k: v for k, v in policy_options.items() if _has(made, k, given.policy_path)}
        sets.append(_choices(made, having, given.policy_path))
    return replace(composed, policies=sets[0], arms=tuple(sets))


def _has(policies: Mapping[str, list[str]], key: tuple[str, str], policy_path: Path | None) -> bool:
    """Say whether some policy of the family `key[0]` has the option `key[1]`."""
    family = FAMILY[key[0]]
    choices = [parse(family, text) for text in policies.get(key[0], [SIMPLEST[family]])]
    return any(key[1] in registry.options(family, c.name, policy_path) for c in choices)


def _arms(value: Any) -> list[dict[str, list[str]]]:
    """Return the `arms:` of a config: one mapping of families to a policy each."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(a, dict) for a in value):
        raise InputError("arms: expected a list of mappings, such as {evictor: lru, prefetcher: none}")
    for arm in value:
        for option in arm:
            if option not in FAMILY:
                raise InputError(f"arms: {nearest(str(option), FAMILY, what='policy family')}")
    return [{str(o): [str(p)] for o, p in arm.items()} for arm in value]


def _merged(given: Given, experiment: str) -> dict[str, Any]:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    words = [f"experiment={given.experiment or experiment}"]
    if given.sweeps:
        words.append(f"+sweep=[{','.join(given.sweeps)}]")
    with initialize_config_dir(config_dir=str(CONF.resolve()), version_base="1.3", job_name="experiments"):
        config = hydra_compose(config_name="config", overrides=words)
    plain = OmegaConf.to_container(config, resolve=False)
    if not isinstance(plain, dict):
        raise InputError("conf/config.yaml: expected options")
    body: dict[str, Any] = {str(k): v for k, v in plain.items()}
    _refuse_code(body, "")
    return body


def _refuse_code(value: Any, place: str) -> None:
    if isinstance(value, str) and "${" in value:
        raise InputError(f"{place}={value}: interpolations are not read; write the value itself")
    if isinstance(value, dict):
        for key, item in value.items():
            if str(key).startswith("_") or key == "policy_path":
                raise InputError(
                    f"{place}{key}: no option of a config file; policies are chosen by name only"
                )
            _refuse_code(item, f"{place}{key}.")


def _listed(value: Any) -> list[str]:
    return [str(v) for v in value] if isinstance(value, list) else split(str(value))


def _choices(
    policies: Mapping[str, list[str]],
    policy_options: Mapping[tuple[str, str], list[Any]],
    policy_path: Path | None,
) -> dict[str, list[Choice]]:
    out: dict[str, list[Choice]] = {}
    for option, family in FAMILY.items():
        choices = [parse(family, text) for text in policies.get(option, [SIMPLEST[family]])]
        for choice in choices:
            choice.load(policy_path)
        for (head, name), several in policy_options.items():
            if head == option:
                having = check_option(choices, name, policy_path)
                choices = [
                    variant
                    for c in choices
                    for variant in ([c.having([(name, v)]) for v in several] if c in having else [c])
                ]
        for choice in choices:
            choice.load(policy_path)
        out[family] = choices
    return out


def _engine_args(given: Given, values: dict[str, Any]) -> tuple[tuple[str, ...], str | None]:
    """Put what `vllm serve` arguments say into the options; return what we do not model of it, and the model.

    They describe a whole engine: what they leave out is vLLM's default, whatever the config file says.
    Mutates `values`.
    """
    from calibration import vllm_args
    from calibration.catalog import parts

    profile = given.values.get("profile", values.get("profile"))
    named = profile is not None and "--" in profile and "/" not in profile
    gpu = given.values.get("gpu") or values.get("gpu") or (parts(str(profile))["gpu"] if named else "H200")
    parsed = vllm_args.parse(str(given.engine_args), gpu)
    values["engine"] = dict(parsed.engine)
    said = {
        "model": parsed.model,
        "tp": parsed.tp,
        "precision": parsed.precision,
        "kv_precision": parsed.kv_precision,
    }
    values |= {name: value for name, value in said.items() if value is not None}
    return tuple(f"engine arguments: {note}" for note in parsed.notes), parsed.model


def put(values: dict[str, Any], name: str, value: Any) -> None:
    """Set a dotted option in nested plain data. Mutates `values`."""
    *groups, last = name.split(".")
    for group in groups:
        inner = values.get(group)
        if not isinstance(inner, dict):
            inner = values[group] = {}
        values = inner
    values[last] = value


def nested_copy(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that shares no dictionary with `values`."""
    return {k: nested_copy(v) if isinstance(v, dict) else v for k, v in values.items()}
