"""The command `roofline`: a profile of a model and a GPU nobody measured, printed or written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from calibration import roofline
from calibration.show import describe
from traces.errors import InputError


def add_parser(commands: Any) -> None:
    """Add `roofline` to the command line."""
    parser = commands.add_parser("roofline", help="price any model on any GPU from their datasheets")
    parser.add_argument("--model", required=True, help="a known model's name, or a config.json or its folder")
    parser.add_argument("--gpu", required=True, help="a listed GPU's name, or a datasheet file (*.json)")
    parser.add_argument("--tp", type=int, default=1, help="GPUs that share the model")
    parser.add_argument("--precision", help="of the weights; default: as the checkpoint is published")
    parser.add_argument("--kv-cache-dtype", metavar="PRECISION", help="fp8 halves the bytes of the KV cache")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the profile")
    parser.set_defaults(run=_roofline)


def _roofline(args: argparse.Namespace) -> None:
    profile = roofline.profile(
        args.model, gpu=args.gpu, tp=args.tp, precision=args.precision, kv_precision=args.kv_cache_dtype
    )
    if args.out is not None:
        try:
            args.out.write_text(profile.to_json(), encoding="utf-8")
        except OSError as e:
            raise InputError(f"--out {args.out}: {e.strerror}") from None
    print(describe(profile))
