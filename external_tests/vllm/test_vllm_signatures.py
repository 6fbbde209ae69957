"""The installed vLLM is one that the host knows, name by name."""

from __future__ import annotations

import pytest

from live.vllm import compat
from live.vllm.compat import Used
from traces.errors import InputError


def test_every_name_and_signature_in_use_is_as_known() -> None:
    assert compat.problems() == []
    compat.require()


def test_a_signature_that_differs_is_listed() -> None:
    used = (Used("vllm.v1.core.block_pool", "BlockPool.touch", ("blocks", "group")),)
    with pytest.raises(InputError, match=r"parameters are \(blocks\), known are \(blocks, group\)"):
        compat.require(None, used)
    with pytest.raises(InputError, match="unknown version"):
        compat.require("0.33.0")
