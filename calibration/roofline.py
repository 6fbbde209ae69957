"""Profiles for what nobody measured: any dense or mixture-of-experts model on any listed GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from calibration.build import build_shape
from calibration.config_json import from_config_json
from calibration.gpus import gpu
from calibration.models import ModelShape, model
from policies.costs import Profile


def roofline(
    model_or_config: str | Path, gpu_key: str, *, tp: int = 1, precision: str | None = None
) -> Profile:
    """Return a roofline-labelled profile.

    model_or_config   a known model's name, or the path of a `config.json` or of the folder that holds it
    precision         None: what the checkpoint is published in

    Whatever the file holds that is not modelled is in `provenance["notes"]`. Raises InputError where the
    file is malformed, `tp` does not divide the model, or weights and one GiB of KV do not fit the GPU.
    """
    shape, notes, source = _shape(model_or_config)
    profile = build_shape(shape, gpu(gpu_key), tp, precision or shape.precision, min_kv_gib=1, roofline=True)
    provenance = {
        **profile.provenance,
        "command": f"calibration.roofline.roofline({source!r}, {gpu_key!r}, tp={tp})",
        "notes": [*profile.provenance["notes"], *notes],
    }
    return replace(profile, provenance=provenance)


def _shape(model_or_config: str | Path) -> tuple[ModelShape, list[str], str]:
    path = Path(model_or_config)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json":
        shape, notes = from_config_json(path)
        return shape, notes, path.name
    name = str(model_or_config)
    shape = model(name)
    return shape, [], shape.name
