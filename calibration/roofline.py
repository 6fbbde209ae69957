"""Profiles for what nobody measured: any dense or mixture-of-experts model on any GPU, listed or from a datasheet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from calibration import datasheet, models
from calibration.build import build_shape
from calibration.config_json import from_config_json
from calibration.kv_precision import with_kv_precision
from policies.costs import Profile


def profile(
    model: str | Path,
    *,
    gpu: str,
    tp: int = 1,
    precision: str | None = None,
    kv_precision: str | None = None,
) -> Profile:
    """Return a roofline-labelled profile.

    model       a known model's name, or the path of a `config.json` or of the folder that holds it
    gpu         a listed GPU's name, or the path of a datasheet (`*.json`, calibration.datasheet)
    precision   None: what the checkpoint is published in
    kv_precision   "fp8": the KV cache takes half the bytes (calibration.kv_precision)

    Whatever the file holds that is not modelled is in `provenance["notes"]`. Raises InputError where the
    file is malformed, `tp` does not divide the model, or weights and one GiB of KV do not fit the GPU.
    """
    path = Path(model)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json":
        shape, notes = from_config_json(path)
    else:
        shape, notes = models.model(str(model)), []
    g = datasheet.gpu(gpu)
    built = build_shape(shape, g, tp, precision or shape.precision, min_kv_gib=1, roofline=True)
    provenance = {
        **built.provenance,
        "command": "calibration.roofline.profile",
        "shape_from": path.name if path.suffix == ".json" else "calibration.models",
        "notes": [*built.provenance["notes"], *notes],
    }
    return with_kv_precision(replace(built, provenance=provenance), kv_precision)
