"""Every way a step is compiled, and the kernels in which the ways differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernels.op import VARIANTS, Op, StepConfig
from kernels.program import ops
from kernels.shapes import Bounds, DecodeShape


def configurations(shape: DecodeShape, bounds: Bounds) -> dict[str, StepConfig]:
    """Return the configurations by name that run anywhere: the variants on rectangles, and ragged plans."""
    plain = {variant: StepConfig(shape, bounds, variant=variant) for variant in VARIANTS}
    return plain | {"ragged": StepConfig(shape, bounds, ragged=True)}


def overlapping(shape: DecodeShape, bounds: Bounds) -> StepConfig:
    """Return the configuration whose launches overlap, which needs compute capability 9.0."""
    return StepConfig(shape, bounds, overlap=True)


def distinct_kernels(configs: Mapping[str, StepConfig]) -> Iterator[tuple[str, StepConfig, str, Op]]:
    """Yield (configuration's name, configuration, op's name, op), once for each distinct kernel and constants."""
    seen = set()
    for label, config in configs.items():
        for name, op in ops(config).items():
            launch = op.plan(config, config.bounds)
            identity = (launch.kernel, tuple(sorted(launch.constants.items())))
            if identity not in seen:
                seen.add(identity)
                yield label, config, name, op
