"""`python -m calibration fit`: measured steps in, a profile out."""

from __future__ import annotations

import argparse
from hashlib import sha256
from pathlib import Path

from calibration.config_json import from_config_json
from calibration.gpus import gpu
from calibration.models import ModelShape, model
from calibration.show import describe


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "fit", help="fit a profile to measured steps (CSV or Parquet, calibration.rows)"
    )
    parser.add_argument("rows", nargs="+", type=Path, metavar="ROWS")
    parser.add_argument("--gpu", required=True, help="a GPU of the datasheets, such as H200")
    parser.add_argument("--tp", type=int, default=1, help="GPUs that share the model")
    parser.add_argument("--model", required=True, help="a known model's name, or the path of its config.json")
    parser.add_argument(
        "--precision", help="of the weights; what the checkpoint is published in if not given"
    )
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--out", type=Path, required=True, help="the profile's file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Fit, write the profile whole, and print what it knows."""
    # Here, since every command builds the whole parser: pandas and scipy take a second to load.
    from calibration.build import profile_digests
    from calibration.fit_profile import Target, fit_profile
    from calibration.rows import concatenate, read_rows

    shape, notes = _shape(args.model)
    g = gpu(args.gpu)
    precision = args.precision or shape.precision
    target = Target(shape.shard(args.tp), g, precision, args.engine)
    rows = concatenate([read_rows(path) for path in args.rows])
    provenance = {
        "command": f"python -m calibration fit ROWS --gpu {g.key} --tp {args.tp} --model {shape.name} "
        f"--precision {precision}",
        "rows": {path.name: sha256(path.read_bytes()).hexdigest()[:16] for path in args.rows},
        "sources": profile_digests(),
        "row_sources": sorted(set(rows.source.tolist()) - {""}),
        "step_costs": f"{len(rows)} measured steps",
        "datasheet": g.title,
        "notes": [*notes, "host link, graph capture and launch are priors, not measurements"],
    }
    profile = fit_profile(rows, target, provenance)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    aside = args.out.with_name(args.out.name + ".part")
    aside.write_text(profile.to_json(), encoding="utf-8")
    aside.replace(args.out)
    print(describe(profile))


def _shape(name: str) -> tuple[ModelShape, list[str]]:
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    return from_config_json(path) if path.suffix == ".json" else (model(name), [])
