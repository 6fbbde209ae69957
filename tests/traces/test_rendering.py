"""Rendered inputs and true values: what they depend on, and what they do not."""

from __future__ import annotations

import pytest

from traces.builder import WorkloadBuilder
from traces.rendering import Rendering
from traces.schema import StageKind, Workload


def chain(*, arguments: int = 4, content: int = 7, params: int = 0) -> Workload:
    """Return decision > handler > answer, with a second option of the same outcome and other arguments."""
    builder = WorkloadBuilder("chain")
    branches = builder.with_branches()
    builder.workflow("w")
    decide = builder.llm(10, 5)
    handler = builder.delay(StageKind.TOOL, 5, parents=[decide])
    answer = builder.llm(10, 5, parents=[handler])
    wrong = builder.delay(StageKind.TOOL, 5, parents=[decide])
    branches.stage(decide, fingerprint=1, content=1, speculable=True)
    for s in (handler, wrong):
        branches.stage(s, fingerprint=2, content=content, params=params, speculable=True, reads=[9])
    branches.stage(answer, fingerprint=3, content=content)
    b = branches.branch(decide, coordinate=0)
    branches.option(b, outcome=1, arguments=arguments, chosen=True, stages=[handler, answer])
    branches.option(b, outcome=1, arguments=5, stages=[wrong])
    return builder.build()


def test_a_stage_on_a_path_depends_on_the_choice_and_not_on_what_the_decision_said() -> None:
    r = Rendering(chain())
    assert r.rendered(1, {}) == r.rendered(1, {0: 123})
    assert r.rendered(1, {}) != r.rendered(3, {})


def test_equal_choices_render_equal_inputs() -> None:
    r = Rendering(chain(arguments=5))
    assert r.rendered(1, {}) == r.rendered(3, {})


def test_other_parents_enter_by_their_value() -> None:
    r = Rendering(chain())
    assert r.rendered(2, {1: 5}) != r.rendered(2, {1: 6})
    with pytest.raises(KeyError):
        r.rendered(2, {})


def test_a_value_depends_on_input_parameters_and_versions_read() -> None:
    r = Rendering(chain())
    other = Rendering(chain(params=1))
    values = {r.value(1, 10, ((9, 0),)), r.value(1, 10, ((9, 1),)), r.value(1, 11, ((9, 0),))}
    assert len(values | {other.value(1, 10, ((9, 0),))}) == 4
    assert r.value(1, 10, ((9, 0),)) == r.value(3, 10, ((9, 0),))


def test_a_stage_that_is_not_determined_by_its_input_equals_no_other() -> None:
    r = Rendering(chain())
    assert r.value(2, 10, ()) != r.value(0, 10, ())
