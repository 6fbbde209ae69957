from __future__ import annotations

import pytest

from live.vllm.attribution import Attribution, AttributionReader
from live.vllm.settings import CONNECTOR, MODULE, EvictionSettings, parse_settings
from traces.errors import InputError


def test_a_request_says_who_sends_it() -> None:
    reader = AttributionReader(("planner", "coder"), pytest.fail)
    given = {
        "wf_id": 7,
        "stage": 3.0,
        "agent": "coder",
        "wf_finished": 1,
        "forecast": [0.5, 0.25, 0.25, 0, 0, 1],
    }
    sender = reader.read(given)
    assert sender.access(9) == (9, 7, 3, 1)
    assert sender.finished
    assert sender.forecast is not None
    assert sender.forecast.tolist() == [[0.5, 0.25, 0.25], [0, 0, 1]]
    assert reader.read(None) == Attribution()
    assert reader.read({"agent": 1}).agent == 1


def test_named_workflows_are_told_apart_and_never_meet_a_number() -> None:
    reader = AttributionReader((), pytest.fail)
    a, b, again = (reader.read({"wf_id": name}).workflow for name in ("a", "b", "a"))
    assert a == again != b
    assert reader.read({"wf_id": 0}).workflow not in (a, b)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("wf_id", -1), ("wf_id", [1]), ("agent", "nobody"), ("agent", 2), ("stage", 1.5), ("wf_finished", "yes"),
        ("forecast", [0.5, 0.5]), ("forecast", "x"), ("forecast", [2.0, -1.0, 0.0]), ("forecast", [0.1, 0.1, 0.1]),
        ("forecast", []),
    ],
)  # fmt: skip
def test_nonsense_is_left_out_and_reported_once(key: str, value: object) -> None:
    lines: list[str] = []
    reader = AttributionReader(("planner", "coder"), lines.append)
    assert reader.read({key: value}) == Attribution()
    assert reader.read({key: value}) == Attribution()
    assert len(lines) == 1
    assert key in lines[0]
    assert "allowed" in lines[0]


def test_settings_survive_the_way_through_vllms_configuration() -> None:
    given = EvictionSettings("lookahead", {"horizon": 2}, agents=("a", "b"), call_ms_max=5)
    config = given.transfer_config()
    assert (config["kv_connector"], config["kv_connector_module_path"]) == (CONNECTOR, MODULE)
    assert parse_settings(config["kv_connector_extra_config"]) == given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"evictr": "lru"}, "did you mean 'evictor'"),
        ({"agents": "planner"}, "a list of names"),
        ({"call_ms_max": -1}, "at least 0"),
        ({"evictor_options": []}, "evictor_options"),
        ({"seed": True}, "seed"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_is_allowed(given: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_settings(given)
