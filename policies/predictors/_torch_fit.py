"""Fits a network's weights under torch. The only file of the family that needs torch; serving does not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from policies.training.fitting import FitConfig
from policies.training.network import Batch, Network, Sizes, start_weights
from policies.training.sequences import Windows
from traces import draws


def fit(
    network: type[Network],
    sizes: Sizes,
    constants: Mapping[str, NDArray[np.float32]],
    learn: Windows,
    watch: Windows,
    config: FitConfig,
) -> dict[str, NDArray[Any]]:
    """Return the weights, constants among them, of the epoch with the least loss on `watch`.

    Deterministic on one machine: start, order of batches and dropout are drawn by (seed, purpose, place), and one
    thread computes. Cross-entropy over the horizon's steps; END is a target like any other, and what comes after it
    (target -1) counts nothing (PBKV, appendix B).
    """
    with _one_thread():
        return _fit(network, sizes, constants, learn, watch, config)


def _fit(
    network: type[Network],
    sizes: Sizes,
    constants: Mapping[str, NDArray[np.float32]],
    learn: Windows,
    watch: Windows,
    config: FitConfig,
) -> dict[str, NDArray[Any]]:
    weights = {
        name: torch.from_numpy(value).requires_grad_()
        for name, value in start_weights(network.shapes(sizes), config.seed).items()
    }
    fixed = {name: torch.from_numpy(np.asarray(value)) for name, value in constants.items()}
    optimiser = torch.optim.AdamW(
        list(weights.values()), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    chance = torch.Generator()
    chance.manual_seed(draws.bits(config.seed, "dropout") >> 1)
    best: dict[str, NDArray[Any]] = {}
    least, since = float("inf"), 0
    for epoch in range(config.epochs):
        order = np.argsort(draws.bits_array(config.seed, "batch order", epoch, np.arange(len(learn))))
        for start in range(0, len(order), config.batch):
            rows = order[start : start + config.batch]

            def drop(x: torch.Tensor) -> torch.Tensor:
                kept = torch.rand(x.shape, generator=chance) >= config.dropout
                return x * kept / (1 - config.dropout)

            z = network.logits(torch, {**weights, **fixed}, _batch(learn, rows), drop)
            optimiser.zero_grad(set_to_none=True)
            _loss(z, learn, rows, sizes).backward()  # type: ignore[no-untyped-call, unused-ignore]
            optimiser.step()
        with torch.no_grad():
            rows = np.arange(len(watch))
            z = network.logits(torch, {**weights, **fixed}, _batch(watch, rows), lambda x: x)
            loss = float(_loss(z, watch, rows, sizes))
        since += 1
        if loss < least:
            least, since = loss, 0
            best = {name: value.detach().numpy().copy() for name, value in weights.items()}
        if since > config.patience:
            break
    return {**best, **{name: np.asarray(value) for name, value in constants.items()}}


def _batch(windows: Windows, rows: NDArray[Any]) -> Batch:
    return Batch(torch.from_numpy(windows.agents[rows]), torch.from_numpy(windows.text[rows]))


def _loss(z: torch.Tensor, windows: Windows, rows: NDArray[Any], sizes: Sizes) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(
        z.reshape(-1, sizes.agents + 1),
        torch.from_numpy(windows.target[rows].reshape(-1)),
        ignore_index=-1,
    )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Sums split over threads depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
