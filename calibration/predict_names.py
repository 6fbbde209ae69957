"""A profile for the words of a table: GPU or system name, precision and model in whatever spelling."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from calibration import catalog
from calibration import constants as data
from calibration.build import build_shape
from calibration.constants import Overhead, constants_key
from calibration.form import price
from calibration.gpus import GPUS, Gpu
from calibration.models import ModelShape
from calibration.predict_models import shape
from policies.costs import Profile
from traces.errors import InputError, nearest

# Boards and links that share a key's first letters with a GPU priced here, and are not it.
_OTHER_GPUS = ("GH200", "GB200", "GB300", "H1000")
_PRECISIONS = {
    "bf16": "bf16", "bfloat16": "bf16", "fp16": "bf16", "float16": "bf16", "half": "bf16", "16": "bf16",
    "fp8": "fp8", "float8": "fp8", "e4m3": "fp8", "w8a8": "fp8", "fp8e4m3": "fp8", "fp8static": "fp8",
    "fp8dynamic": "fp8", "fp8block": "fp8", "fp8blockwise": "fp8",
    "mxfp4": "mxfp4", "w4a16mxfp4": "mxfp4",
}  # fmt: skip


@dataclass(frozen=True)
class Named:
    """A profile and what was read into the words that asked for it."""

    profile: Profile
    notes: tuple[str, ...]


def system(name: str) -> Gpu:
    """Return the GPU a system name speaks of; raises InputError with the nearest.

    >>> system("h200_sxm").key, system("NVIDIA A100-SXM4-80GB").key
    ('H200', 'A100')
    """
    letters = re.sub(r"[^A-Z0-9]", "", name.upper())
    found = [key for key in GPUS if key in letters and not any(o in letters for o in _OTHER_GPUS)]
    if not found:
        raise InputError(nearest(name, [*GPUS, "h200_sxm", "h100_sxm", "a100_sxm"], what="system"))
    return GPUS[max(found, key=len)]


def precision(name: str, model: str, checkpoint: ModelShape) -> tuple[str, str]:
    """Return (precision priced, a note or ""); an empty name is the precision of the checkpoint.

    fp8_block (scales for blocks of weights) is priced as fp8. Raises InputError for a name nobody knows.
    """
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    if plain in ("", "nan", "none", "auto"):
        if re.search(r"fp8|w8a8", model.lower()):
            return "fp8", f"precision not given: fp8, from the name {model!r}"
        return checkpoint.precision, f"precision not given: {checkpoint.precision}, the checkpoint's"
    if plain not in _PRECISIONS:
        raise InputError(nearest(name, ("bf16", "fp8", "fp8_block", "mxfp4"), what="precision"))
    priced = _PRECISIONS[plain]
    if checkpoint.precision == "mxfp4" and priced == "bf16":
        # Such a checkpoint is served with 4-bit experts whatever the dtype of its activations.
        return "mxfp4", f"precision {name}: {checkpoint.name} is published in mxfp4"
    return priced, "fp8_block is priced as fp8" if "block" in plain else ""


@cache
def profile(model: str, system_name: str, precision_name: str, tp: int, pricing: str = "plain") -> Named:
    """Return the profile of a case: its names read, its kernels priced.

    pricing   "plain": the eight-constant form of the GPU, without the knots that bend it to the kernel tables;
              "catalogue": the committed profile, else one built as those are. On engines that were measured the
              plain form is the closer of the two (docs/calibration.md), so tables of cases use it
    Raises InputError where a name is unknown, the GPU lacks the precision, or the model does not fit (with
    the arithmetic).
    """
    g, m = system(system_name), shape(model)
    priced, note = precision(precision_name, model, m)
    notes = (note,) if note else ()
    key = constants_key(g, priced)  # refuses a precision the GPU does not multiply in
    built = build_shape(m, g, tp, priced, min_kv_gib=0.25)
    name = f"{g.key}x{tp}--{m.name}--{priced}--vllm"
    committed = (catalog.PROFILES / f"{name}.json").is_file()
    if pricing == "catalogue":
        return Named(catalog.open(name) if committed else built, notes)
    defaults = data.read("step_cost_defaults")["constants"]
    constants = data.from_body(defaults[key], key) if key in defaults else data.constants(key)
    built = price(
        m.shard(tp), g, priced, constants, plain_overhead(),
        timing=str(built.identity["timing"]), provenance=built.provenance, error=built.error,
    )  # fmt: skip
    return Named(built, notes if committed else (*notes, f"not in the catalogue: constants of {key}"))


def plain_overhead() -> Overhead:
    """Return the engine time that goes with the plain form: fitted beside it, since one takes up the other's error."""
    c = data.read("serving_constants")["constants"]
    return Overhead(c["step_us"], c["seq_us"], "calibration/data/serving_constants.json")
