"""What one command compares: arms, seeds, and the run that answers each (arm, seed). Plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traces.errors import InputError, at

PLAN_SCHEMA = 1


@dataclass(frozen=True)
class Arm:
    """One policy combination at one point of the axes.

    label      unique in its plan: `name`, and the axes' values where the plan sweeps any
    axes       swept option -> value ({} without axes); arms with equal axes are compared with each other
    overrides  what sets this arm apart from the plan's config, as command-line overrides
    policies   family -> "name" or "name(option=value, ...)"; all families, only options that are not defaults
    name       the policies that differ between the plan's arms, the same at every point of the axes
    needs      what its policies need from a host; {"oracle"} makes it an offline reference
    """

    label: str
    axes: dict[str, Any]
    overrides: tuple[str, ...]
    policies: dict[str, str]
    name: str = ""
    needs: tuple[str, ...] = ()

    @property
    def offline_reference(self) -> bool:
        """Whether the arm knows the future, so that no live engine can run it."""
        return "oracle" in self.needs


@dataclass(frozen=True)
class Plan:
    """A whole comparison; the first arm is the one that others are compared with.

    command    the exact command line that reproduces it
    runs       (arm label, seed) -> run_id; two pairs may share a run
    draws      (arm label, draw of the profile) -> run_id; draw d runs with seed `draw_seed(d)`. Empty unless asked for
    workload   name, digest, counts, provenance; where an axis changes it, of the first arm
    profile    name, identity, error, digest; likewise
    kv         blocks and source of the KV capacity; likewise
    config     resolved options of the first arm, nested (`engine: {max_num_seqs: ...}`)
    changed    options whose value is not the default, dotted name -> value
    slo        ttft_ms and tpot_ms thresholds of slo_goodput
    notes      what the reader must know (not modelled flags, stated assumptions)
    failures   (arm label, seed) -> one-line reason, for runs that failed
    """

    name: str
    command: str
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    runs: dict[tuple[str, int], str]
    workload: dict[str, Any]
    profile: dict[str, Any]
    kv: dict[str, Any]
    config: dict[str, Any]
    changed: dict[str, Any] = field(default_factory=dict)
    slo: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failures: dict[tuple[str, int], str] = field(default_factory=dict)
    draws: dict[tuple[str, int], str] = field(default_factory=dict)

    @property
    def draw_count(self) -> int:
        """Draws of the profile that each arm is run under."""
        return len({draw for _, draw in self.draws})

    def draw_seed(self, draw: int) -> int:
        """Return the seed that a draw of the profile runs with: draws take the seeds in turn."""
        return self.seeds[draw % len(self.seeds)]

    @property
    def digest(self) -> str:
        """Hex digest of what is compared: arms, seeds and run ids; not of the command or the failures."""
        body: list[Any] = [self.name, [[a.label, s, r] for (a, s), r in self._ordered_runs()]]
        if self.draws:
            body.append([[label, draw, run] for (label, draw), run in self.draws.items()])
        return hashlib.blake2b(json.dumps(body).encode(), digest_size=16).hexdigest()

    @property
    def directory_name(self) -> str:
        """`<name>-<first 12 digits of the digest>`: the experiment's folder in the store."""
        return f"{self.name}-{self.digest[:12]}"

    def axis_points(self) -> list[dict[str, Any]]:
        """Return the distinct axes values of the arms, in order; `[{}]` for a plan without axes."""
        points: list[dict[str, Any]] = []
        for arm in self.arms:
            if arm.axes not in points:
                points.append(arm.axes)
        return points

    def _ordered_runs(self) -> list[tuple[tuple[Arm, int], str]]:
        pairs = [(arm, seed) for arm in self.arms for seed in self.seeds]
        return [((arm, seed), self.runs[arm.label, seed]) for arm, seed in pairs]

    def to_json(self) -> str:
        """Return the plan as JSON text; `parse_plan` reads it back."""
        body = {
            "schema": PLAN_SCHEMA,
            "name": self.name,
            "command": self.command,
            "arms": [vars(a) for a in self.arms],
            "seeds": self.seeds,
            "runs": [[label, seed, run] for (label, seed), run in self.runs.items()],
            "draws": [[label, draw, run] for (label, draw), run in self.draws.items()],
            "workload": self.workload,
            "profile": self.profile,
            "kv": self.kv,
            "config": self.config,
            "changed": self.changed,
            "slo": self.slo,
            "notes": self.notes,
            "failures": [[label, seed, reason] for (label, seed), reason in self.failures.items()],
        }
        return json.dumps(body, indent=1) + "\n"


def parse_plan(text: str, source: str = "plan.json") -> Plan:
    """Read a plan from JSON text; raises InputError naming `source` and the field."""
    try:
        body = json.loads(text)
    except json.JSONDecodeError as e:
        raise InputError(f"{at(source, e.lineno)}: not JSON: {e.msg}") from None
    if not isinstance(body, dict) or body.get("schema") != PLAN_SCHEMA:
        raise InputError(f"{at(source, field='schema')}: expected a plan of schema {PLAN_SCHEMA}")
    try:
        return Plan(
            name=body["name"],
            command=body["command"],
            arms=tuple(_arm(a) for a in body["arms"]),
            seeds=tuple(body["seeds"]),
            runs={(label, seed): run for label, seed, run in body["runs"]},
            workload=body["workload"],
            profile=body["profile"],
            kv=body["kv"],
            config=body["config"],
            changed=body["changed"],
            slo=body["slo"],
            notes=tuple(body["notes"]),
            failures={(label, seed): reason for label, seed, reason in body["failures"]},
            draws={(label, draw): run for label, draw, run in body.get("draws", [])},
        )
    except KeyError as e:
        raise InputError(f"{at(source, field=str(e.args[0]))}: missing") from None
    except (TypeError, ValueError) as e:
        raise InputError(f"{source}: not a plan: {e}") from None


def load_plan(path: Path) -> Plan:
    """Read a plan file; raises InputError with one clear line."""
    try:
        return parse_plan(path.read_text(encoding="utf-8"), str(path))
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None


def _arm(body: Mapping[str, Any]) -> Arm:
    return Arm(
        label=body["label"],
        axes=body["axes"],
        overrides=tuple(body["overrides"]),
        policies=body["policies"],
        name=body["name"],
        needs=tuple(body["needs"]),
    )
