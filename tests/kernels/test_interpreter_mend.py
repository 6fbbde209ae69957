"""The interpreter's faults: each law holds with the mend, and the first two fail without it."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from kernels.interpreter import ORIGINALS, mend, narrow, widen

mend()


@triton.jit
def _dot_kernel(a, b, c, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.jit
def _cast_kernel(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i).to(tl.bfloat16))


@triton.jit
def _loop_kernel(bound, out):
    n = tl.load(bound)
    total = 0
    for i in range(n):
        total += i
    tl.store(out, total)


def _dot_error() -> float:
    generator = torch.Generator()
    generator.manual_seed(7)
    a, b = (torch.randn(16, 16, generator=generator).bfloat16() for _ in range(2))
    c = torch.zeros(16, 16)
    _dot_kernel[(1,)](a, b, c, BLOCK=16)
    return float((c - a.float() @ b.float()).abs().max())


def _wrong_casts() -> int:
    x = torch.linspace(-3, 3, 256)
    x[0], x[1], x[2] = float("nan"), float("inf"), 1.0 + 2**-8
    y = torch.zeros(256, dtype=torch.bfloat16)
    _cast_kernel[(1,)](x, y, BLOCK=256)
    same = (y == x.bfloat16()) | (y.isnan() & x.isnan())
    return int((~same).sum())


def test_bfloat16_products_are_products_of_values():
    assert _dot_error() < 1e-5


def test_float32_rounds_to_nearest_bfloat16():
    assert _wrong_casts() == 0


def test_a_loaded_word_bounds_a_loop():
    out = torch.zeros(1, dtype=torch.int32)
    _loop_kernel[(1,)](torch.tensor([5], dtype=torch.int32), out)
    assert int(out) == 10


@pytest.mark.parametrize(("name", "wrong"), [("create_dot", _dot_error), ("cast_impl", _wrong_casts)])
def test_mend_is_needed(monkeypatch, name, wrong):
    """Where this fails, the installed Triton is mended itself, and so much of the mend can go."""
    monkeypatch.setattr(interpreter.InterpreterBuilder, name, ORIGINALS[name])
    assert wrong() > 1


def test_narrow_of_widen_is_every_bfloat16():
    every = np.arange(1 << 16, dtype=np.uint16)
    back = narrow(widen(every))
    nan = np.isnan(widen(every))
    assert np.array_equal(back[~nan], every[~nan])
    assert np.isnan(widen(back[nan])).all()
    values = torch.from_numpy(widen(every)[~nan]).double()
    halfway = ((values[:-1] + values[1:]) / 2).float()
    assert np.array_equal(
        narrow(halfway.numpy()), halfway.bfloat16().view(torch.int16).numpy().view(np.uint16)
    )
