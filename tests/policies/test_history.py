"""What is known of a node moves up the tree once, whatever splits happened before."""

from __future__ import annotations

from flat_cache import Node
from hypothesis import given
from hypothesis import strategies as st

from policies._ghosts import Ghosts
from policies._history import History, Record


@given(st.lists(st.sampled_from(["hit", "split"]), max_size=12))
def test_hits_are_counted_once_however_often_a_node_was_split(events: list[str]) -> None:
    history: History[Record] = History(Record)
    leaf = Node(0)
    history.insert(leaf)
    hits = 0
    for i, event in enumerate(events):
        if event == "hit":
            history.hit(leaf)
            hits += 1
        else:
            upper = Node(i + 1, parent=leaf.parent)
            leaf.parent = upper
            history.split(upper, leaf)
    at: Node | None = leaf
    while at is not None:
        assert history.records[at.id].hits == hits
        history.remove(at)
        at = at.parent
    assert not history.records


def test_the_end_of_a_request_is_a_use_but_no_hit_and_moves_up() -> None:
    history: History[Record] = History(Record)
    parent = Node(1)
    child = Node(2, parent=parent)
    other = Node(3)
    for node in (parent, child, other):
        history.insert(node)
    assert history.records[child.id].stamp < history.records[other.id].stamp
    history.done(child)
    assert history.records[child.id].stamp > history.records[other.id].stamp
    history.remove(child)
    assert history.records[parent.id].stamp > history.records[other.id].stamp
    assert history.records[parent.id].hits == 0


def test_ghosts_hold_the_newest_within_their_limit() -> None:
    ghosts = Ghosts()
    for identity in range(5):
        ghosts.add(identity, 10)
    ghosts.add(0, 20)
    ghosts.trim(40)
    assert [i for i in range(5) if i in ghosts] == [0, 3, 4]
    assert (len(ghosts), ghosts.tokens) == (3, 40)
    ghosts.forget(0)
    assert ghosts.tokens == 20
