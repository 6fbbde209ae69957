"""Programs a multiprocessor holds: each limit binds somewhere, and nothing that a kernel takes makes room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.check.occupancy import resident


@pytest.mark.parametrize(
    ("arch", "registers", "warps", "shared_bytes", "expected"),
    [
        (90, 32, 1, 0, 32),  # the cap on programs
        (90, 32, 16, 0, 4),  # warps
        (90, 255, 8, 0, 1),  # registers: 255 are handed out as 256, eight warps take all
        (90, 129, 4, 0, 3),  # registers in grains: 129 * 32 is 4,352 a warp, not 4,128
        (90, 32, 4, 113 << 10, 2),  # shared memory, with 1 KiB each beside it
        (90, 32, 4, 114 << 10, 1),
        (80, 32, 4, 81 << 10, 2),
        (80, 32, 4, 164 << 10, 0),  # one does not fit
    ],
)
def test_each_limit_binds(arch, registers, warps, shared_bytes, expected):
    assert resident(arch, registers, warps, shared_bytes) == expected


@given(
    st.sampled_from([80, 90]), st.integers(16, 254), st.sampled_from([1, 2, 4, 8]), st.integers(0, 160 << 10)
)
def test_a_kernel_that_takes_more_never_fits_more_often(arch, registers, warps, shared_bytes):
    fits = resident(arch, registers, warps, shared_bytes)
    assert resident(arch, registers + 1, warps, shared_bytes) <= fits
    assert resident(arch, registers, 2 * warps, shared_bytes) <= fits
    assert resident(arch, registers, warps, shared_bytes + 999) <= fits
