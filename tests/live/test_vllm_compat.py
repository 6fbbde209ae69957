from __future__ import annotations

import sys
from types import ModuleType

import pytest

from live.vllm import compat
from live.vllm.compat import Used
from traces.errors import InputError


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> str:
    class Pool:
        def touch(self, blocks: object) -> None: ...

        def free(self, blocks: object, later: bool = False) -> None: ...

    module = ModuleType("made_up_engine")
    module.Pool = Pool  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_up_engine", module)
    return "made_up_engine"


def test_what_is_as_known_raises_nothing(engine: str) -> None:
    compat.require("0.32.1", (Used(engine, "Pool.touch", ("blocks",)), Used(engine, "Pool")))


def test_an_unknown_version_is_refused_with_the_list_of_what_changed(engine: str) -> None:
    used = (
        Used(engine, "Pool.touch", ("blocks",)),
        Used(engine, "Pool.free", ("blocks",)),
        Used(engine, "Pool.reset", ()),
        Used("made_up_elsewhere", "Pool"),
    )
    with pytest.raises(InputError) as e:
        compat.require("0.40.0", used)
    text = str(e.value)
    assert "0.40.0: unknown version" in text
    assert compat.DECLARED in text
    assert "parameters are (blocks, later), known are (blocks)" in text
    assert "there is no 'reset'" in text
    assert "made_up_elsewhere" in text
    assert "touch" not in text


def test_an_unknown_version_without_changes_is_refused_too(engine: str) -> None:
    with pytest.raises(InputError, match="nobody has tried it"):
        compat.require("0.30.9", (Used(engine, "Pool"),))


def test_a_known_version_with_another_signature_is_refused(engine: str) -> None:
    with pytest.raises(InputError, match=r"a known version with other signatures .* known are \(block\)"):
        compat.require("0.32.0", (Used(engine, "Pool.touch", ("block",)),))
