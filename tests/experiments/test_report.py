from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fake_runs import Effect, make

from experiments.columns import COLUMNS
from experiments.report import render_report, write_report
from experiments.report_html import prose, tag, text
from experiments.summary import summarise

ARMS = {"lru": Effect(0.4), "lifecycle": Effect(0.5, 0.95), "belady_leaf": Effect(0.6, 0.9)}
VOID = {"meta", "br", "hr", "img", "link"}


class _Page(HTMLParser):
    """Reads a page: checks that elements nest, and collects text, ids and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(name)
        if name not in VOID:
            self.open.append(name)
        for key, value in attributes:
            assert not key.startswith("on"), f"script in {key}"
            if key == "id":
                self.ids.append(value or "")
            if key in ("src", "href", "xlink:href", "action", "data"):
                self.links.append(value or "")

    def handle_startendtag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(name, attributes)
        self.open.pop()

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words).replace("\u00a0", " "))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    plan, store = make(tmp_path_factory.mktemp("store"), ARMS, notes=("Recorded think times are replayed.",))
    summary = summarise(plan, store)
    return plan, store, summary, render_report(plan, summary, store)


def test_the_report_is_one_file_that_loads_nothing(made: Any) -> None:
    page = _Page(made[3])
    assert page.open == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert all(link.startswith("#") for link in page.links)
    outside = re.sub(r'xmlns(:\w+)?="[^"]*"', "", made[3])
    assert "://" not in outside
    assert "@import" not in outside
    assert re.findall(r"url\((?!#)", outside) == []


def test_ids_are_unique_and_every_reference_resolves(made: Any) -> None:
    page = _Page(made[3])
    assert len(page.ids) == len(set(page.ids))
    references = [*page.links, *re.findall(r"url\((#[^)]+)\)", made[3])]
    assert references
    assert {r[1:] for r in references} <= set(page.ids)


def test_the_report_is_the_same_bytes_every_time(made: Any, tmp_path: Path) -> None:
    plan, store, summary, page = made
    path = write_report(plan, summary, store, tmp_path)
    assert path.read_text(encoding="utf-8") == page
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_report_reads_in_light_and_dark(made: Any) -> None:
    page = made[3]
    light, dark = (dict(re.findall(r"(--[\w-]+): (#\w+)", part)) for part in _schemes(page))
    used = set(re.findall(r"var\((--[\w-]+)\)", page))
    assert used <= set(light)
    assert set(light) == set(dark)
    body = page[page.index("<body>") :]
    fixed = set(re.findall(r"(?:fill|stroke|color|background): ?(#[0-9a-f]{3,6})", body))
    assert fixed == set()


def _schemes(page: str) -> tuple[str, str]:
    style = page[page.index("<style>") : page.index("</style>")]
    dark = "".join(re.findall(r"@media \(prefers-color-scheme: dark\) \{(.*?\})\s*\}", style, re.DOTALL))
    return re.sub(r"@media \(prefers-color-scheme: dark\) \{.*?\}\s*\}", "", style, flags=re.DOTALL), dark


def test_everything_a_reader_must_know_is_there(made: Any) -> None:
    plan, _, summary, page = made
    shown = _Page(page).text
    for sentence in summary["headline"]:
        assert sentence in shown
    for wanted in (
        "offline reference", "kernel tables", "8.1", "held-out steps", "Apache-2.0", "4,000 blocks",
        "stated arithmetic of gpu_memory_utilization", "engine.max_num_seqs", plan.command,
        plan.workload["digest"],
        "Recorded think times are replayed.", "TTFT up to 2000 ms", "92.0 %",
    ):  # fmt: skip
        assert wanted in shown, wanted
    for column in (c for c in COLUMNS if not c.rare):
        assert column.label in shown
        assert summary["metrics"][column.key]["definition"] in shown
    for title in (
        "Change against lru",
        "GPU hit rate over time",
        "Latency distributions",
        "Batch and KV occupancy",
    ):
        assert title in shown


def test_values_of_the_table_are_those_of_the_summary(made: Any) -> None:
    shown = _Page(made[3]).text
    for arm in made[2]["groups"][0]["arms"]:
        full = arm["windows"]["full"]
        for column in (c for c in COLUMNS if not c.rare):
            cell = column.show(full["metrics"][column.key]["mean"])
            change = full["change"].get(column.key)
            if change is not None:
                cell += " " + column.show_change(change, 5)
            assert cell in shown


def test_what_users_name_is_text_and_never_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>&\"'$x$"
    plan, store = make(
        tmp_path, {"lru": Effect(), evil: Effect(0.6)}, seeds=(0, 1), missing=((evil, 1),),
        name=evil, command=evil, workload={"name": evil, "provenance": {evil: evil}}, changed={evil: evil},
        notes=(evil,), failures={(evil, 1): evil}, kv={"blocks": 5, "source": evil},
    )  # fmt: skip
    summary = summarise(plan, store)
    page = _Page(render_report(plan, summary, store))
    assert page.open == []
    assert "script" not in page.tags
    assert page.text.count("<script>alert(1)</script>&\"'$x$") >= 12


def test_a_sweep_shows_its_axis_and_a_table_a_point(tmp_path: Path) -> None:
    two = {"lru": ARMS["lru"], "lifecycle": ARMS["lifecycle"]}
    plan, store = make(
        tmp_path,
        two,
        seeds=(0, 1),
        axes={"load.concurrency": [1, 2, 4, 8, 16]},
        size={"requests": 60, "steps": 80},
    )
    summary = summarise(plan, store)
    page = _Page(render_report(plan, summary, store))
    assert "Metrics against load.concurrency" in page.text
    assert [f"load.concurrency={v}" in page.text for v in (1, 2, 4, 8, 16)] == [True] * 5
    assert (
        page.tags.count("svg") == 1 + 3 * 4
    )  # the sweep, and four figures at the first, middle and last point
    assert len(page.ids) == len(set(page.ids))


def test_runs_that_are_missing_are_listed_with_their_reason(tmp_path: Path) -> None:
    plan, store = make(
        tmp_path, ARMS, seeds=(0, 1), missing=(("lru", 1),), failures={("lru", 1): "disk full"}
    )
    shown = _Page(render_report(plan, summarise(plan, store), store)).text
    assert "Runs that are missing" in shown
    assert "disk full" in shown


def test_an_experiment_without_a_finished_run_still_has_a_report(tmp_path: Path) -> None:
    plan, store = make(tmp_path, ARMS, seeds=(0,), missing=tuple((a, 0) for a in ARMS))
    shown = _Page(render_report(plan, summarise(plan, store), store)).text
    assert "No run has finished." in shown
    assert shown.count("not run") == 3


def test_a_single_arm_is_reported_without_a_comparison(tmp_path: Path) -> None:
    plan, store = make(tmp_path, {"lru": Effect()}, seeds=(0, 1))
    page = _Page(render_report(plan, summarise(plan, store), store))
    assert "lru: mean workflow latency" in page.text
    assert page.tags.count("svg") == 3


def test_a_large_experiment_stays_under_two_megabytes(tmp_path: Path) -> None:
    many = {f"policy{i}": Effect(0.3 + 0.05 * i) for i in range(9)}
    plan, store = make(tmp_path, many, seeds=(0, 1), size={"requests": 3000, "steps": 20_000})
    assert len(render_report(plan, summarise(plan, store), store).encode()) < 2_000_000


def test_html_helpers_escape() -> None:
    assert tag("p", text('<a href="x">'), title='"') == '<p title="&quot;">&lt;a href=&quot;x&quot;&gt;</p>'
    assert prose("5 % & more") == "5\u00a0% &amp; more"
