"""Builds the committed profiles, GPU x TP size x model x precision, from the constants in `data/`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from calibration import constants as data
from calibration import fit_tables
from calibration.engine_draws import overhead_draw
from calibration.errors import stated_error
from calibration.form import price
from calibration.gpus import Gpu, gpu
from calibration.knots import KNOT_TOKENS
from calibration.memory import GIB, kv_bytes
from calibration.models import ModelShape, Shard, model
from calibration.posterior import posterior
from policies.costs import Profile
from sim.config import EngineConfig
from traces.errors import InputError

GPUS = ("H200", "H100", "A100", "RTX4090", "A6000")
MODELS = (
    "Qwen3-8B", "Qwen3-14B", "Qwen3-32B", "Llama-3.1-8B", "Llama-3.1-70B", "Qwen3-30B-A3B", "gpt-oss-20b",
)  # fmt: skip
PRECISIONS = ("bf16", "fp8")
TP = {
    "Qwen3-8B": (1, 2), "Qwen3-14B": (1, 2, 4), "Llama-3.1-8B": (1, 2), "Qwen3-30B-A3B": (1, 2, 4),
    "gpt-oss-20b": (1, 2),
}  # fmt: skip
_TP_LARGE = (1, 2, 4, 8)
MIN_KV_GIB = 4
_SOURCES = (
    "step_cost_defaults.json", "operation_constants.json", "all_reduce.json", "engine_overhead.json",
    "kernel_steps.parquet", "kernel_fit.json",
)  # fmt: skip


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
            for precision in _precisions(gpu(g), model(m)):
                for tp in TP.get(m, _TP_LARGE):
                    yield Cell(g, tp, m, precision)


def _precisions(g: Gpu, shape: ModelShape) -> tuple[str, ...]:
    if shape.precision not in PRECISIONS:
        return (shape.precision,)
    return PRECISIONS if g.fp8_flop_per_s else PRECISIONS[:1]


def build(cell: Cell, *, uncertainty: bool = True) -> Profile:
    """Return the profile of one cell; raises InputError with the arithmetic where it is impossible.

    Without `uncertainty` its prices alone, which takes a tenth of the time.
    """
    return build_shape(model(cell.model), gpu(cell.gpu), cell.tp, cell.precision, uncertainty=uncertainty)


def build_shape(
    shape: ModelShape,
    g: Gpu,
    tp: int,
    precision: str,
    *,
    min_kv_gib: float = MIN_KV_GIB,
    roofline: bool = False,
    uncertainty: bool = True,
) -> Profile:
    """Return a profile of any shape on any listed GPU.

    `roofline` labels it so even where the GPU has kernel tables (they hold dense models only). Raises
    InputError where `tp` does not divide the model, the GPU lacks the precision, or less than `min_kv_gib`
    is left for KV.
    """
    key = data.constants_key(g, precision)
    fitted = key == f"{g.tables}:{precision}" and not roofline and not shape.experts and not shape.latent
    shard = shape.shard(tp)
    # Experts, latent attention and a GPU from a file: nobody measured how far the form is off there.
    unchecked = shape.experts > 0 or shape.latent is not None or bool(g.datasheet)
    provenance = _provenance(g, tp, key, fitted, shape)
    profile = price(
        shard, g, precision, data.constants(key, tp), data.overhead(),
        timing="kernel tables" if fitted else "roofline",
        provenance=provenance,
        error=stated_error(g, shape.name, precision, tp, moe=unchecked, roofline=not fitted),
    )  # fmt: skip
    if uncertainty and fitted and key in data.read("kernel_fit")["keys"]:
        profile = _with_uncertainty(profile, shard, g, key)
    # The smallest pool vLLM would start with: few sequences, short steps.
    left, text = kv_bytes(profile, EngineConfig(max_num_seqs=64, max_num_batched_tokens=2048))
    if left < min_kv_gib * GIB:
        raise InputError(
            f"{profile.name.rsplit('--', 1)[0]} does not fit: {text} for KV, "
            f"at least {min_kv_gib:g} is needed"
        )
    return profile


def _with_uncertainty(profile: Profile, shard: Shard, g: Gpu, key: str) -> Profile:
    """Add the draws and bands of the kernel tables; engine overhead varies as real engines do."""
    found = data.read("kernel_fit")["keys"][key]
    precision = str(profile.identity["precision"])
    drawn = []
    by_tp = found["draws"]
    size = data.size_of(by_tp, shard.tp)
    for i, body in enumerate(by_tp[size]):
        drawn.append(
            price(
                shard, g, precision, data.from_fit(body), overhead_draw(i), timing="", provenance={}, error={},
                tokens=KNOT_TOKENS,
            )
        )  # fmt: skip
    source = (
        f"resampled models of the kernel tables, plus the effect of one not fitted at TP {size}; engine "
        "overhead lognormal around the fitted constants (deviation 0.5 a step, 0.3 a sequence)"
    )
    return replace(profile, posterior=posterior(profile, drawn, source), bands=found["bands"])


def refit() -> None:
    """Fit the kernel tables again and replace `calibration/data/kernel_fit.json`."""
    text = json.dumps(fit_tables.report(), sort_keys=True, separators=(",", ":"))
    # One line a key: 50 draws a key would else be ten thousand lines.
    (data.DATA / "kernel_fit.json").write_text(text + "\n", encoding="utf-8")
    data.read.cache_clear()


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


def _provenance(g: Gpu, tp: int, key: str, fitted: bool, shape: ModelShape) -> dict[str, Any]:
    table = "operation_constants" if key.startswith("rtx4090") else "kernel_fit"
    notes = [
        "host link bandwidth, copy overhead, graph capture and launch are priors, not measurements",
        "an eager step is charged 11 launches a layer of 5 us each, none hidden behind kernels",
    ]
    if not fitted:
        notes.append(f"roofline: datasheet of {g.title} with the efficiency constants of {key}")
    if shape.experts:
        notes.append(
            "mixture of experts: no expert kernels were measured; constants of dense matrix multiplies, with "
            "weight reads dense + experts (1 - (1 - k/E)^n), even routing"
        )
    if shape.latent:
        notes.append(
            "latent attention: priced in the absorbed form, prefill too (an engine that expands keys and values "
            "there multiplies less); constants of grouped-query kernels; its cache is whole on every GPU"
        )
    if tp > 1:
        notes.append(_all_reduce_note(g))
    return {
        "command": "python -m calibration build",
        "constants": key,
        "sources": profile_digests(),
        "step_costs": data.read(table)["provenance"]["from" if table != "kernel_fit" else "rows"],
        "overhead": data.overhead().source,
        "datasheet": g.title,
        "notes": notes,
    }


def profile_digests() -> dict[str, str]:
    """Return the first 16 hex digits of the digest of every data file that prices depend on."""
    return {f"calibration/data/{name}": _digest(name) for name in _SOURCES}


def _all_reduce_note(g: Gpu) -> str:
    if not g.nvlink:
        return "all-reduce: assumed ring over PCIe, 25 us and the host link's rate"
    own = g.tables in data.read("all_reduce")["tables"]
    return f"all-reduce: kernel table of {g.key if own else 'H100 (none published for ' + g.key + ')'}"


def _digest(name: str) -> str:
    return sha256((data.DATA / name).read_bytes()).hexdigest()[:16]
