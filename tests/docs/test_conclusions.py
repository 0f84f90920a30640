"""Every page of results begins with its conclusion, and the conclusion is what the rows of the page say."""

from __future__ import annotations

import re

import pytest

from benchmarks import conclusions
from benchmarks.conclusions import CONCLUSIONS, RESULTS, concluded, conclusion, number, pages, read

TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in RESULTS.glob("*.md")}


def words(name: str) -> str:
    return conclusion(name, TEXTS[name])


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_a_page_begins_with_what_its_rows_say(path):
    assert path.stem in CONCLUSIONS, f"{path.name}: write its conclusion in benchmarks/conclusions.py"
    again = "the rows say something else: python benchmarks/conclusions.py"
    assert TEXTS[path.stem] == concluded(path.stem, TEXTS[path.stem]), again
    sentences = re.split(r"(?<=[.])\s+(?=[A-Z`\d])", words(path.stem))
    assert len(sentences) == 2, sentences
    assert all(re.search(r"\d", part) for part in sentences[:1])


def test_pages_that_have_a_command_of_their_own_for_it_do_not_begin_with_how_they_were_written():
    own = {name for name in TEXTS if name.startswith(conclusions.OWN)} - {"index", "paper"}
    assert "navigation" in own
    for name in own:
        first = TEXTS[name].split("\n\n")[1]
        assert re.search(r"\d", first), name
        assert not first.startswith("Written by"), name


def test_no_conclusion_is_left_of_a_page_that_is_gone():
    assert set(CONCLUSIONS) <= set(TEXTS)


def test_a_row_that_changes_changes_the_conclusion():
    text = TEXTS["release"]
    step = read(text).first.rows[3]["step"]
    broken = text.replace(f"| {step} | yes |", f"| {step} | **no** |")
    assert step in conclusion("release", broken)
    assert conclusion("release", broken) != words("release")
    assert "1 of 4 filters" not in words("speed")
    slower = re.sub(r"(\| Stream\.step, batch 32 \|) [\d.]+", r"\1 7.25", TEXTS["speed"])
    assert "to 7.25 times" in conclusion("speed", slower)


def test_a_conclusion_is_written_once():
    text = concluded("walk", TEXTS["walk"])
    assert concluded("walk", text) == text
    assert text.count(conclusions.BEGIN) == 1


# ---- beside what the commands of the pages say of themselves ---------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stated", "said"),
    [
        ("robustness", r"Of (\d+) rows, .* and (\d+) all three", r"in (?P<b>\d+) of (?P<a>\d+) conditions"),
        ("hardening", r"([\d,]+) cases in [\d,]+ runs by hand, (\d+) failures", r"Of (?P<a>[\d,]+) .* (?P<b>\d+) succ"),
        ("verdicts", r"(\d+) of (\d+) logs agree", r"(?P<a>\d+) of (?P<b>\d+) public logs"),
        ("fix_logs", r"in (\d+) of (\d+) logs, worse", r"white noise in (?P<a>\d+) of (?P<b>\d+)"),
        ("changing_noise", r"Bank of levels: of (\d+) cond.*?, (\d+) all three", r"in (?P<b>\d+) of (?P<a>\d+) condit"),
        ("changing_noise", r"Level tracked: of (\d+) cond.*?, (\d+) all three", r"in (?P<b>\d+) of (?P<a>\d+)\. Where"),
    ],
)
def test_counts_are_those_that_the_page_states(name, stated, said):
    page = re.search(stated, conclusions.without_conclusion(TEXTS[name]))
    ours = re.search(said, words(name))
    assert [number(ours[group]) for group in "ab"] == [number(page[1]), number(page[2])]


def test_tables_are_read_as_they_are_written():
    page = read(
        "# T\n\n## One\n\n| a | b | b |\n|---|---|---|\n| x | **1** | 2 |\n| y |  | 3 |\n\n| c |\n| --- |\n| z |\n"
    )
    one, two = page.tables
    assert (one.heading, one.columns, one.where(a="x")) == ("One", ("a", "b", "b"), [{"a": "x", "b": "1"}])
    assert conclusions.numbers(one.rows, "b") == [1.0]
    assert two.rows == ({"c": "z"},)
