"""What Triton's interpreter gets wrong on a CPU, mended. Seen on 3.6.0 to 3.9.0; each mend has a test that needs it.

- `tl.dot` of bfloat16 multiplies the raw 16-bit patterns: operands are widened first.
- float32 to bfloat16 truncates: it rounds to nearest even, as the GPU does; NaN stays NaN.
- 3.6.0 converts a loaded loop bound with int() of an array, which NumPy 2.4 refuses: its one element is taken.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What was there before the mend, by name; empty while nothing is mended.
ORIGINALS: dict[str, Any] = {}


def wanted() -> bool:
    """Say whether kernels decorated from now on are interpreted."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


def widen(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the values of bfloat16 bit patterns, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bfloat16 bit patterns nearest to `values`, ties to even.

    >>> [hex(b) for b in narrow(np.array([1.0, 1.00390625, 1.01171875], np.float32))]
    ['0x3f80', '0x3f80', '0x3f82']
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    quiet_nan = ((bits >> 16) | 0x40).astype(np.uint16)
    return np.where(np.isnan(values), quiet_nan, rounded).reshape(np.shape(values))


def mend() -> None:
    """Patch the interpreter of the installed Triton, once. Mutates the module, hence every interpreted kernel."""
    import triton.language as tl
    from triton.runtime import interpreter

    if ORIGINALS:
        return
    builder: Any = interpreter.InterpreterBuilder
    handle = interpreter.TensorHandle
    dot, cast, patch_tensor = builder.create_dot, builder.cast_impl, interpreter._patch_lang_tensor
    ORIGINALS.update(create_dot=dot, cast_impl=cast, _patch_lang_tensor=patch_tensor)

    def widened(x: Any) -> Any:
        return handle(widen(x.data), tl.float32) if x.dtype.scalar == tl.bfloat16 else x

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, widened(a), widened(b), *rest)

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source == tl.float32 and target == tl.bfloat16:
            return handle(narrow(src.data), target)
        if source == tl.bfloat16 and target == tl.float32:
            return handle(widen(src.data), target)
        return cast(self, src, dst_type)

    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    builder.create_dot, builder.cast_impl = create_dot, cast_impl
    interpreter._patch_lang_tensor = patch_lang_tensor
