"""Names, options, a user's own files and installed entry points; every refusal says what is allowed."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from policies.api import FAMILIES, OPTION, Evictor
from policies.registry import (
    SIMPLEST,
    PolicySet,
    describe,
    find,
    load,
    name_of,
    names,
    options,
    source_digest,
)
from traces.errors import InputError

MINE = """
from dataclasses import dataclass
from policies.evictors.lru import Lru

@dataclass(frozen=True)
class Mine(Lru):
    '''A copy of LRU.

    depth   how deep
            it goes
    '''
    depth: int = 3
    rate: float | None = None
    on: bool = False
    label = "mine"
"""
REQUIRED = MINE.replace("int = 3", "int").replace("None = None", "None").replace("bool = False", "bool")
HALF = """
from policies.api import Evictor

class Half(Evictor):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def test_the_set_of_defaults_is_the_simplest_of_every_family() -> None:
    policies = PolicySet()
    assert sorted(f.name for f in dataclasses.fields(policies)) == sorted(OPTION.values())
    for family, option in OPTION.items():
        policy = getattr(policies, option)
        assert isinstance(policy, FAMILIES[family])
        assert name_of(policy) == SIMPLEST[family]
    assert policies.needs() == frozenset()
    assert PolicySet(evictor=load("evictors", "belady_leaf")).needs() == {"oracle"}  # type: ignore[arg-type]
    assert PolicySet() == policies


def test_asking_for_one_policy_imports_no_other_and_no_torch() -> None:
    code = (
        "import sys; from policies.registry import load, names; names('evictors'); load('evictors', 'lru');"
        "heavy = ('torch', 'pandas', 'scipy');"
        "print(*[m for m in sys.modules if m.startswith('policies.evictors.') or m in heavy])"
    )
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert out.stdout.split() == ["policies.evictors.lru"]


def test_every_built_in_policy_has_a_label_and_documented_options() -> None:
    for family in FAMILIES:
        for name in names(family):
            assert find(family, name).label
            for option, (_, default, doc) in options(family, name).items():
                assert doc, f"{family}/{name}.py: option {option} has no line in the class docstring"
                assert default is not dataclasses.MISSING


def test_a_file_in_the_user_s_folder_is_a_policy(folder: Path) -> None:
    assert "mine" in names("evictors", folder)
    assert "mine" not in names("routers", folder)
    assert "mine" not in names("evictors")
    given = {"depth": "7", "rate": "0.5", "on": "yes"}
    policy = load("evictors", "mine", given, folder)
    assert isinstance(policy, Evictor)
    assert describe(policy) == "mine(depth=7, rate=0.5, on=True)"
    assert load("evictors", "mine", given, folder) == policy
    assert options("evictors", "mine", folder)["depth"] == (int, 3, "how deep it goes")


def test_a_file_in_a_family_s_subfolder_is_a_policy(folder: Path) -> None:
    (folder / "evictors").mkdir()
    (folder / "mine.py").rename(folder / "evictors" / "theirs.py")
    assert "theirs" in names("evictors", folder)
    assert name_of(load("evictors", "theirs", None, folder)) == "theirs"


def test_listing_runs_no_file_of_the_user(folder: Path) -> None:
    (folder / "mine.py").write_text(MINE + "\nraise RuntimeError('was run')\n")
    (folder / "broken.py").write_text("def (")
    assert "mine" in names("evictors", folder)
    assert "broken" not in names("evictors", folder)


def test_the_digest_follows_the_source_of_the_policy(folder: Path) -> None:
    before = source_digest(load("evictors", "mine", None, folder))
    assert before == source_digest(load("evictors", "mine", {"depth": 9}, folder))
    (folder / "mine.py").write_text(MINE + "\n# changed\n")
    assert source_digest(load("evictors", "mine", None, folder)) != before
    assert source_digest(load("evictors", "lru")) != source_digest(load("evictors", "lfu"))


def test_an_installed_package_can_bring_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_policies.py").write_text(MINE)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[foreserve.policies]\nevictors.theirs = their_policies:Mine\nevictors.module = their_policies\n"
        "evictors.gone = their_policies:Gone\nevictors.other = their_policies:dataclass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"theirs", "module"} <= set(names("evictors"))
    assert load("evictors", "theirs", {"depth": 4}) == load("evictors", "module", {"depth": 4})
    for name, words in (("gone", "AttributeError"), ("other", "neither a Evictor nor a module")):
        with pytest.raises(InputError, match=words):
            load("evictors", name)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"dept": 1}, "unknown option of evictor=mine 'dept'; did you mean 'depth'"),
        ({"depth": "x"}, "evictor.depth='x': expected int"),
        ({"depth": 1.5}, "evictor.depth=1.5: expected int"),
        ({"depth": True}, "evictor.depth=True: expected int"),
        ({"depth": None}, "evictor.depth=None: expected int"),
        ({"rate": "nan"}, "evictor.rate='nan': expected float or none"),
        ({"rate": [1]}, r"evictor.rate=\[1\]: expected float or none"),
        ({"on": "maybe"}, "evictor.on='maybe': expected bool"),
    ],
)
def test_a_bad_option_is_refused_with_what_is_allowed(
    folder: Path, value: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        load("evictors", "mine", value, folder)


@pytest.mark.parametrize(
    ("given", "made"),
    [("7", 7), (7, 7), (7.0, 7), (" 1_000 ", 1000), ("-3", -3)],
)
def test_whole_numbers_are_read_from_texts_and_numbers(folder: Path, given: object, made: int) -> None:
    assert load("evictors", "mine", {"depth": given}, folder) == load(
        "evictors", "mine", {"depth": made}, folder
    )


@pytest.mark.parametrize("given", [None, "none", "null", "None"])
def test_none_is_read_where_it_is_allowed(folder: Path, given: object) -> None:
    assert describe(load("evictors", "mine", {"rate": given}, folder)) == "mine(depth=3, rate=None, on=False)"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("def (", r"bad\.py:1: SyntaxError"),
        ("x = 1\ny = x / 0\n", r"bad\.py:2: ZeroDivisionError"),
        ("x = 1\n", "expected one concrete subclass of Evictor, found none"),
        (MINE + MINE.replace("Mine", "Other"), "found Mine, Other"),
        (MINE.replace("@dataclass(frozen=True)\n", ""), "lacks the decorator"),
        (REQUIRED, r"option evictor\.depth \(int\) must be given"),
        (HALF, r"Half lacks new_state, next_victim"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "bad.py").write_text(content)
    with pytest.raises(InputError, match=words) as error:
        load("evictors", "bad", None, tmp_path)
    assert "\n" not in str(error.value)


def test_a_user_s_policy_cannot_take_a_built_in_name(folder: Path) -> None:
    (folder / "mine.py").rename(folder / "lru.py")
    with pytest.raises(InputError, match="name of a built-in policy; rename the file"):
        load("evictors", "lru", None, folder)
    assert name_of(load("routers", "round_robin", None, folder)) == "round_robin"


@pytest.mark.parametrize(
    ("family", "name", "words"),
    [
        ("evictors", "lur", "unknown evictor 'lur'; did you mean 'lru'"),
        ("routers", "../lru", "unknown router"),
        ("evictor", "lru", "unknown policy family 'evictor'; did you mean 'evictors'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(family: str, name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load(family, name)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder"):
        load("evictors", "mine", None, tmp_path / "nowhere")
