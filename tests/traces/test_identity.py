"""Laws of identities, names in text, and term weights."""

import pytest

from traces.identity import identity, joined, plain, text_tokens
from traces.mentions import mentions
from traces.tfidf import TfIdf, terms


def test_identities_keep_equality_and_kind_and_the_parts_apart() -> None:
    assert identity("a", "x", "y") == identity("a", "x", "y")
    different: list[tuple[str, tuple[str | int, ...]]] = [
        ("a", ("x", "y")), ("b", ("x", "y")), ("a", ("xy",)), ("a", ("x", "y", "")), ("a", ("y", "x")), ("a", ("1",)),
        ("a", (1,)),
    ]  # fmt: skip
    assert len({identity(kind, *parts) for kind, parts in different}) == len(different)
    assert all(0 <= identity("a", str(i)) < 2**63 for i in range(50))
    assert len({joined(1, 2), joined(2, 1), joined(1), joined(1, 2, 0), joined()}) == 5


def test_tokens_follow_bytes_and_are_at_least_one() -> None:
    assert [text_tokens(t) for t in ("", "abc", "x" * 444, "é" * 222)] == [1, 1, 100, 100]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("It was built by Ann Lee.", ["ann lee"]),
        ("The Port of Hull lies there.", ["port of hull", "port", "hull"]),
        ("Ann Lee's brother met J. K. Roe.", ["ann lee", "j k roe"]),
        ("Hull, York and Leeds; Bath", ["hull", "york and leeds", "york", "leeds", "bath"]),
        ("Met Mrs. Roe. Dr. Lee left.", ["met mrs roe", "dr lee"]),
        ("On 3 May 1990 and in January", []),
        ("She and Ann of the north", ["ann"]),
        ("Apollo 11 landed", ["apollo"]),
        ("a Ludwig van Roe fan", ["ludwig van roe", "ludwig", "roe"]),
        ("U.S. Route 5", ["u s route"]),
        ("", []),
    ],
)
def test_names_are_runs_of_capitals(text: str, names: list[str]) -> None:
    assert [name for name, _ in mentions(text)] == names


def test_a_name_stands_where_it_says() -> None:
    text = "There Ann Lee met Bob Ray. Ann Lee left."
    assert all(plain(text[at:]).startswith(name) for name, at in mentions(text))
    assert [name for name, _ in mentions(text)].count("ann lee") == 2


def test_likeness_is_one_for_the_same_words_and_grows_with_rare_ones() -> None:
    documents = [terms(t) for t in ("get area of shape", "get name of user", "get size of user")]
    weights = TfIdf(documents)
    assert weights.score(documents[0], documents[0]) == 1
    assert weights.score(terms("area"), documents[0]) > weights.score(terms("get"), documents[0]) > 0
    assert weights.score(terms("nothing alike"), documents[0]) == weights.score([], documents[0]) == 0
    assert weights.weight("get") == 1
    assert weights.weight("area") > weights.weight("user") > 1


def test_likeness_does_not_depend_on_the_order_of_words_or_documents() -> None:
    documents = [terms(t) for t in ("get area of shape", "get name of user", "set name")]
    one, two = TfIdf(documents), TfIdf(documents[::-1])
    query = terms("the name of the shape")
    for d in documents:
        assert one.score(query, d) == two.score(query[::-1], d[::-1])
