"""Whatever the bytes, an importer returns a sound workload or raises InputError in one line."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces import formats, lengths, store, synthetic
from traces.arrivals import poisson
from traces.errors import InputError
from traces.schema import Workload

_AGENTIC = [
    {"request_id": "a", "session_id": "s", "timestamp": 1.5, "input_length": 70, "hash_ids": [5, 6]},
    {
        "request_id": "b",
        "session_id": "s",
        "input_length": 9,
        "wait_for": ["a"],
        "tool_wait_ms": 7,
        "delay": 0.5,
    },
]
_TALK = {"id": "q", "messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]}
_ROW = {
    "input_toks": 2,
    "output_toks": 1,
    "arrival_time_ns": 7,
    "input_tok_ids": [1, 2],
    "output_tok_ids": [3],
}
SAMPLES: dict[str, tuple[str, bytes]] = {
    "csv": ("csv", b"arrival_s,prompt_tokens,output_tokens\n0.25,10,3\n1.5,20,4\n"),
    "grouped": ("csv", b"arrival_s,prompt_tokens,output_tokens,workflow\n0.25,10,3,a\n1.5,20,4,a\n"),
    "azure": ("azure", b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,48,1\n"),
    "mooncake": ("mooncake", b'{"timestamp":3,"input_length":600,"output_length":5,"hash_ids":[1,2]}\n' * 2),
    "agentic": ("mooncake", "\n".join(json.dumps(r) for r in _AGENTIC).encode()),
    "talk": ("sharegpt", json.dumps(_TALK).encode()),
    "array": ("sharegpt", json.dumps([_TALK, _TALK]).encode()),
    "row": ("sharegpt", json.dumps(_ROW).encode()),
}
edits = st.lists(
    st.tuples(
        st.sampled_from(["set", "delete", "insert", "cut"]),
        st.floats(0, 1, exclude_max=True),
        st.sampled_from([*b'0123456789-.,:"[]{}eE\n\r\x00\xff\x1f tfnNI']) | st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)


def edited(content: bytes, changes: list[tuple[str, float, int]]) -> bytes:
    out = bytearray(content)
    for kind, where, byte in changes:
        i = int(where * len(out))
        if kind == "insert":
            out[i:i] = bytes([byte])
        elif kind == "cut":
            del out[i + 1 :]
        elif out:
            out[i : i + 1] = bytes([byte]) if kind == "set" else b""
    return bytes(out)


def outcome(read: Callable[[], Workload]) -> Workload | str:
    """Return the workload, or the text of the InputError; anything else that is raised fails the test."""
    try:
        return read()
    except InputError as e:
        return str(e)


@pytest.mark.parametrize("sample", SAMPLES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=edits)
def test_edited_traces_load_soundly_or_fail_in_one_line(
    sample: str, changes: list[tuple[str, float, int]], tmp_path: Path
) -> None:
    form, content = SAMPLES[sample]
    path = tmp_path / "trace"
    path.write_bytes(edited(content, changes))
    for name in (form, None):
        result = outcome(functools.partial(formats.load, path, name))
        if isinstance(result, str):
            assert len(result.splitlines()) == 1
            assert str(path) in result
        else:
            assert result.errors() == []


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=edits)
def test_edited_workload_files_open_soundly_or_fail_in_one_line(
    changes: list[tuple[str, float, int]], tmp_path: Path
) -> None:
    path = tmp_path / "a.workload"
    if not path.exists():
        fixed = lengths.Fixed(20)
        store.save(
            synthetic.sessions(
                "a", poisson(2, 1.0, 0), turns=lengths.Fixed(2), user=fixed, output=fixed, think_ms=fixed,
                system_tokens=40,
            ),
            path,
        )  # fmt: skip
    broken = tmp_path / "b.workload"
    broken.write_bytes(edited(path.read_bytes(), changes))
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # zipfile warns of names given twice before we refuse them
        result = outcome(lambda: store.open(broken))
    if isinstance(result, str):
        assert len(result.splitlines()) == 1
        assert str(broken) in result
    else:
        assert result.errors() == []
