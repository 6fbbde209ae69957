"""Builds the committed profiles, GPU x TP size x model x precision, from the constants in `data/`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from calibration import constants as data
from calibration.errors import stated_error
from calibration.form import price
from calibration.gpus import Gpu, gpu
from calibration.memory import GIB, kv_bytes
from calibration.models import ModelShape, model
from policies.costs import Profile
from sim.config import EngineConfig
from traces.errors import InputError

GPUS = ("H200", "H100", "A100", "RTX4090", "A6000")
MODELS = ("Qwen3-8B", "Qwen3-14B", "Qwen3-32B", "Llama-3.1-8B", "Llama-3.1-70B")
PRECISIONS = ("bf16", "fp8")
TP = {"Qwen3-8B": (1, 2), "Qwen3-14B": (1, 2, 4), "Llama-3.1-8B": (1, 2)}
_TP_LARGE = (1, 2, 4, 8)
MIN_KV_GIB = 4
_SOURCES = ("step_cost_defaults", "operation_constants", "all_reduce", "engine_overhead", "form_error")


@dataclass(frozen=True)
class Cell:
    """One profile to build."""

    gpu: str
    tp: int
    model: str
    precision: str


def cells() -> Iterator[Cell]:
    """Yield every cell of the catalogue in a fixed order; fp8 where the GPU multiplies in it."""
    for g in GPUS:
        for m in MODELS:
            for precision in PRECISIONS if gpu(g).fp8_flop_per_s else PRECISIONS[:1]:
                for tp in TP.get(m, _TP_LARGE):
                    yield Cell(g, tp, m, precision)


def build(cell: Cell) -> Profile:
    """Return the profile of one cell; raises InputError with the arithmetic where it is impossible."""
    return build_shape(model(cell.model), gpu(cell.gpu), cell.tp, cell.precision)


def build_shape(
    shape: ModelShape,
    g: Gpu,
    tp: int,
    precision: str,
    *,
    min_kv_gib: float = MIN_KV_GIB,
    roofline: bool = False,
) -> Profile:
    """Return a profile of any shape on any listed GPU.

    `roofline` labels it so even where the GPU has kernel tables (they hold dense models only). Raises
    InputError where `tp` does not divide the model, the GPU lacks the precision, or less than `min_kv_gib`
    is left for KV.
    """
    key = data.constants_key(g, precision)
    fitted = key == f"{g.tables}:{precision}" and not roofline and not shape.experts
    profile = price(
        shape.shard(tp), g, precision, data.constants(key), data.overhead(),
        timing="kernel tables" if fitted else "roofline",
        provenance=_provenance(g, tp, key, fitted),
        error=stated_error(g, shape.name, precision, tp, moe=shape.experts > 0, roofline=not fitted),
    )  # fmt: skip
    # The smallest pool vLLM would start with: few sequences, short steps.
    left, text = kv_bytes(profile, EngineConfig(max_num_seqs=64, max_num_batched_tokens=2048))
    if left < min_kv_gib * GIB:
        raise InputError(
            f"{profile.name.rsplit('--', 1)[0]} does not fit: {text} for KV, "
            f"at least {min_kv_gib:g} is needed"
        )
    return profile


def write_all(folder: Path) -> tuple[list[str], list[str]]:
    """Write every possible profile into `folder`; return (names written, one line for each refusal).

    The bytes depend on the code and the data files alone. Profiles of cells no longer built are left alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written, refused = [], []
    for cell in cells():
        try:
            profile = build(cell)
        except InputError as e:
            refused.append(str(e))
            continue
        (folder / f"{profile.name}.json").write_text(profile.to_json(), encoding="utf-8")
        written.append(profile.name)
    return written, refused


def _provenance(g: Gpu, tp: int, key: str, fitted: bool) -> dict[str, Any]:
    table = "operation_constants" if key.startswith("rtx4090") else "step_cost_defaults"
    notes = [
        "host link bandwidth, copy overhead, graph capture and launch are priors, not measurements",
        "an eager step is charged 11 launches a layer of 5 us each, none hidden behind kernels",
    ]
    if not fitted:
        notes.append(f"roofline: datasheet of {g.title} with the efficiency constants of {key}")
    if tp > 1:
        notes.append(_all_reduce_note(g))
    return {
        "command": "python -m calibration build",
        "constants": key,
        "sources": {f"calibration/data/{name}.json": _digest(name) for name in _SOURCES},
        "step_costs": data.read(table)["provenance"]["from"],
        "overhead": data.overhead().source,
        "datasheet": g.title,
        "notes": notes,
    }


def _all_reduce_note(g: Gpu) -> str:
    if not g.nvlink:
        return "all-reduce: assumed ring over PCIe, 25 us and the host link's rate"
    own = g.tables in data.read("all_reduce")["tables"]
    return f"all-reduce: kernel table of {g.key if own else 'H100 (none published for ' + g.key + ')'}"


def _digest(name: str) -> str:
    return sha256((data.DATA / f"{name}.json").read_bytes()).hexdigest()[:16]
