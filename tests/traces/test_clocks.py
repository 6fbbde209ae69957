"""Laws of clock files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import clocks
from traces._hci_flow import QUANTITIES as HCI
from traces._react_flow import QUANTITIES as REACT
from traces._routing_flow import QUANTITIES as ROUTING
from traces._subagent_flow import QUANTITIES as SUBAGENT
from traces.errors import InputError

NEEDED = {"hci": HCI, "react": REACT, "routing": ROUTING, "subagent": SUBAGENT}


def write(folder: Path, **quantities: Any) -> str:
    path = folder / "own.json"
    path.write_text(json.dumps({"about": "mine", "quantities": quantities}))
    return str(path)


def test_every_workflow_has_a_clock_with_all_it_needs_and_nothing_else() -> None:
    assert set(clocks.names()) == set(NEEDED)
    for name, needed in NEEDED.items():
        clock = clocks.load(name).require(*needed)
        assert set(clock.curves) == set(needed)
        assert all(len(text) > 6 for text in clock.sources.values())


def test_draws_follow_the_curve_and_depend_on_nothing_but_quantity_seed_and_ids(tmp_path: Path) -> None:
    clock = clocks.load(
        write(tmp_path, x_ms={"source": "s", "points": [[0, 10], [500, 20], [900, 100], [1000, 100]]})
    )
    drawn = np.array([clock.draw("x_ms", 0, i) for i in range(4000)])
    assert drawn.min() >= 10
    assert drawn.max() == 100
    for share, value in ((0.25, 15), (0.5, 20), (0.7, 60)):
        assert abs(np.mean(drawn < value) - share) < 0.03
    assert np.mean(drawn == 100) > 0.08
    again = clocks.load(
        write(tmp_path, y={"source": "s", "value": 1}, x_ms={"source": "s", "quantiles": [0, 1000]})
    )
    assert [clock.draw("x_ms", 0, i) for i in range(9)] != [clock.draw("x_ms", 1, i) for i in range(9)]
    ranks = [again.draw("x_ms", 0, i) for i in range(60)]  # another curve, the same luck
    assert (np.diff(drawn[np.argsort(ranks)]) >= 0).all()


def test_a_fixed_quantity_is_one_value(tmp_path: Path) -> None:
    clock = clocks.load(
        write(tmp_path, a={"source": "s", "value": 7}, b={"source": "s", "quantiles": [1, 2]})
    )
    assert clock.fixed("a") == clock.draw("a", 3, 4) == 7
    with pytest.raises(InputError, match="quantity 'b' must be one 'value'"):
        clock.fixed("b")


def test_the_digest_of_a_clock_changes_with_numbers_and_sources(tmp_path: Path) -> None:
    digests = {
        clocks.load(write(tmp_path, a={"source": s, "value": v})).said()["clock_digest"]
        for s, v in (("measured", 1), ("measured", 2), ("assumed", 1))
    }
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"value": 1}, "expected an object with a 'source'"),
        ({"source": "s"}, "expected 'source' and one of value"),
        ({"source": "s", "value": 1, "quantiles": [1, 2]}, "expected 'source' and one of value"),
        ({"source": "s", "value": 1.5}, "whole numbers"),
        ({"source": "s", "value": -1}, "whole numbers"),
        ({"source": "s", "quantiles": [2, 1]}, "whole numbers"),
        ({"source": "s", "quantiles": [1] * 8}, "whole numbers"),
        ({"source": "s", "points": [[0, 1], [900, 2]]}, "whole numbers"),
        ({"source": "s", "points": [[0, 1], [0, 2], [1000, 3]]}, "whole numbers"),
        ({"source": "s", "points": [3]}, "whole numbers"),
    ],
)
def test_an_unsound_quantity_is_refused_with_its_place(
    tmp_path: Path, given: dict[str, Any], text: str
) -> None:
    with pytest.raises(InputError, match=rf"quantities\.q.*{text}"):
        clocks.load(write(tmp_path, q=given))


def test_missing_and_unknown_quantities_and_clocks_are_named(tmp_path: Path) -> None:
    one = {"source": "s", "value": 1}
    path = write(tmp_path, search_ms=one)
    with pytest.raises(InputError, match="no quantity 'thought_tokens'"):
        clocks.load(path).require("search_ms", "thought_tokens")
    with pytest.raises(InputError, match="unknown quantity 'search_ms'; did you mean 'search_s'"):
        clocks.load(write(tmp_path, search_ms=one, search_s=one)).require("search_s")
    with pytest.raises(InputError, match="did you mean 'react'"):
        clocks.load("raect")
    with pytest.raises(InputError, match="no such file"):
        clocks.load(str(tmp_path / "none.json"))
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(InputError, match="expected an object with 'about' and 'quantities'"):
        clocks.load(str(tmp_path / "list.json"))
