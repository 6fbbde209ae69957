"""What needs an extra that is not installed is not searched; Triton's kernels are interpreted; no test is timed."""

import os
from importlib.util import find_spec

if find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("untimed", deadline=None)  # a busy machine is no finding
    settings.load_profile("untimed")

_has_kernels = all(find_spec(name) for name in ("torch", "triton"))
if _has_kernels:
    # Read when a kernel is decorated, hence before any is imported. What must be compiled runs in a process of its own.
    os.environ["TRITON_INTERPRET"] = "1"

collect_ignore = [] if find_spec("torch") else ["policies/predictors/_torch_fit.py"]
collect_ignore_glob = [] if _has_kernels else ["kernels/*", "tests/kernels/*"]
