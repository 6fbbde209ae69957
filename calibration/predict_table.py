"""A table of closed-loop cases, one prediction a row: the form in which unseen measurements are compared.

Columns, in any order and case: model, system, precision, tp, isl, osl, concurrency. Optional and used where
they are there: max_num_batched_tokens, max_num_seqs, gpu_memory_utilization, num_gpu_blocks. Any other column
is left alone. A row that cannot be served is answered with nulls and an `error`; the others go on.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from calibration import vllm_args
from calibration.predict import predict_closed_loop
from calibration.predict_client import ClosedLoop
from calibration.predict_names import profile, system
from calibration.predict_serving import serving
from sim.config import EngineConfig
from traces.errors import InputError, at, nearest

REQUIRED = ("model", "system", "precision", "tp", "isl", "osl", "concurrency")
FIELDS = ("ttft_ms", "tpot_ms", "e2e_ms", "throughput_tok_s")
_ENGINE = ("max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization", "num_gpu_blocks")
_ALIASES = {
    "model_path": "model", "model_name": "model", "gpu": "system", "hardware": "system", "tp_size": "tp",
    "tensor_parallel_size": "tp", "input_len": "isl", "output_len": "osl", "conc": "concurrency",
    "batch_concurrency": "concurrency", "quant": "precision", "dtype": "precision",
}  # fmt: skip


@dataclass(frozen=True)
class Habit:
    """How a benchmark and its engine were run, where a table does not say.

    scheduling       see calibration.predict_serving
    spread_permille  see calibration.predict_client.ClosedLoop
    max_num_batched_tokens   the prefill budget; None: vLLM's default for the GPU
    """

    name: str
    scheduling: str
    spread_permille: int
    max_num_batched_tokens: int | None


# Each is what one family of measured rows shows (docs/calibration.md). "equal": requests of equal length on an
# engine that schedules step by step, which keep in step with each other; "mixed": lengths vary, asynchronous.
HABITS: dict[str, Habit] = {
    "equal": Habit("equal", "sync", 0, 2048),
    "mixed": Habit("mixed", "async", 500, None),
}


@dataclass(frozen=True)
class Settings:
    """What every row of a table shares.

    habit    a name of HABITS, or "auto": "mixed" for quantised checkpoints, "equal" for bf16, as in the rows
             that could be looked at; an inference, not a rule
    engine   engine options that replace vLLM's defaults
    """

    rounds: int = 10
    habit: str = "auto"
    engine: tuple[tuple[str, Any], ...] = ()


def engine_of(system_name: str, habit: Habit) -> EngineConfig:
    """Return the engine options of a case: vLLM's defaults for the GPU, and the habit's prefill budget."""
    engine = _defaults(system_name)
    if habit.max_num_batched_tokens is not None:
        engine = replace(engine, max_num_batched_tokens=habit.max_num_batched_tokens)
    return engine


def habit_of(settings: Settings, precision: str) -> Habit:
    """Return the habit that a table's settings give a case of this precision."""
    if settings.habit == "auto":
        return HABITS["equal" if precision == "bf16" else "mixed"]
    if settings.habit not in HABITS:
        raise InputError(nearest(settings.habit, ("auto", *HABITS), what="habit"))
    return HABITS[settings.habit]


def predict_table(path: Path, settings: Settings | None = None) -> list[dict[str, Any]]:
    """Return one object a row, in row order: FIELDS, and `error` and `notes` where there are any.

    Raises InputError where the file cannot be read or lacks a column; a bad row is an `error` of its own.
    """
    chosen = settings or Settings()
    return [_answer(row, f"{path}:{line}", chosen) for line, row in _rows(path)]


def predict_case(row: Mapping[str, str], place: str, settings: Settings) -> dict[str, Any]:
    """Return FIELDS (means; throughput by Little's law) and `notes` of one case; raises InputError.

    Little's law, concurrency·osl / end to end, is the throughput of the steady loop, without the last round's
    drain.
    """
    tp, isl, osl, concurrency = (_whole(row, name, place) for name in ("tp", "isl", "osl", "concurrency"))
    named = profile(row["model"].strip(), row["system"].strip(), row["precision"].strip(), tp)
    priced, habit = named.profile, habit_of(settings, str(named.profile.identity["precision"]))
    engine = replace(engine_of(row["system"].strip(), habit), **dict(settings.engine))
    engine = replace(engine, **_engine_columns(row, place))
    if isl + osl > priced.max_model_len:
        raise InputError(f"{isl} + {osl} tokens exceed the model's {priced.max_model_len}")
    # A spread of lengths must not ask for more than the model takes.
    room = (priced.max_model_len - isl - osl) * 1000 // osl
    client = ClosedLoop(isl, osl, concurrency, settings.rounds, min(habit.spread_permille, room))
    seen = predict_closed_loop(priced, client, engine, how=serving(habit.scheduling))
    ttft, tpot = seen.ttft_ms.mean, seen.tpot_ms.mean
    assert ttft is not None
    e2e = ttft + (tpot or 0.0) * (osl - 1)
    figures = (ttft, tpot or 0.0, e2e, concurrency * osl / e2e * 1e3)
    return {
        **{name: float(f"{x:.6g}") for name, x in zip(FIELDS, figures, strict=True)},
        "notes": [*named.notes, *seen.notes[1:], f"assumed: client and engine habit {habit.name}"],
    }


def _answer(row: Mapping[str, str], place: str, settings: Settings) -> dict[str, Any]:
    try:
        return predict_case(row, place, settings)
    except InputError as e:
        return {**dict.fromkeys(FIELDS), "error": str(e)}


@cache
def _defaults(system_name: str) -> EngineConfig:
    base = vllm_args.parse("", gpu=system(system_name).key).config()
    # Prompts of a benchmark share nothing, so the cache is only work.
    return replace(base, prefix_cache="none")


def _engine_columns(row: Mapping[str, str], place: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in _ENGINE:
        text = row.get(name, "").strip()
        if text and text.lower() not in ("nan", "none", "null"):
            out[name] = _number(text, name, place) if name.startswith("gpu_") else _whole(row, name, place)
    return out


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [_column(c) for c in next(reader, [])]
            missing = [c for c in REQUIRED if c not in header]
            if missing:
                raise InputError(
                    f"{at(path, 1, missing[0])}: missing; a table of cases has {', '.join(REQUIRED)}"
                )
            return [
                # Short lines lack their last fields: those rows answer for themselves.
                (reader.line_num, dict.fromkeys(header, "") | dict(zip(header, cells, strict=False)))
                for cells in reader
                if any(c.strip() for c in cells)
            ]
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as e:
        raise InputError(f"{path}: not a CSV file in UTF-8: {e}") from None


def _column(name: str) -> str:
    plain = re.sub(r"[\s-]+", "_", name.strip().lower())
    return _ALIASES.get(plain, plain)


def _number(text: str, name: str, place: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{place}: field {name!r}: got {text!r}, expected a number") from None


def _whole(row: Mapping[str, str], name: str, place: str) -> int:
    text = row.get(name, "").strip()
    number = _number(text, name, place)
    # Tables that went through a spreadsheet or pandas write 8.0 for 8.
    if not (1 <= number < 1e9 and number == int(number)):
        raise InputError(f"{place}: field {name!r}: got {text!r}, expected a whole number of at least 1")
    return int(number)
