"""The page: everything from a log is escaped, nothing loads or runs, and numbers survive their formatting."""

from __future__ import annotations

import itertools
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from fwnkf.report.page import FOLD, POLICY, Notice, Page, Section, Table
from fwnkf.report.wording import TEXT_LIMIT, clean, number

VOID = {"meta", "path", "use", "image", "rect", "circle"}
HOSTILE = "<script>alert(1)</script>\"'&lt;$\\frac{$ `</code>` ]]> <!-- </title></style>"


class Reader(HTMLParser):
    """Elements, attributes and text of a page as a browser would see them; raises where elements do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.data = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.data += data
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    def check(self) -> None:
        """Nothing can be run or loaded, and identifiers are unique."""
        allowed = {
            "html", "head", "meta", "title", "style", "body", "header", "main", "nav", "section", "details", "summary",
            "h1", "h2", "p", "div", "span", "code", "a", "ol", "li", "dl", "dt", "dd", "figure", "figcaption",
            "table", "thead", "tbody", "tr", "th", "td",
            "svg", "g", "defs", "path", "use", "text", "tspan", "image", "rect", "clippath",
        }  # fmt: skip
        assert set(self.tags) - allowed <= {"script"}
        for tag, name, value in self.attributes:
            assert not name.startswith("on"), (tag, name)
            assert name != "src"
            if name == "href":
                assert value.startswith(("#", "data:image/png;base64,")), value
            if tag == "script":
                assert (name, value) in (("type", "application/json"), ("id", "data"))
        ids = [value for _, name, value in self.attributes if name == "id"]
        assert len(ids) == len(set(ids))
        policies = [value for tag, name, value in self.attributes if tag == "meta" and name == "content"]
        assert POLICY in policies


def test_every_text_of_a_page_is_escaped():
    counter = itertools.count()

    def text() -> str:
        return f"{HOSTILE} number {next(counter)}."

    table = Table((text(), "b"), ((text(), 1.0), (text(), None)), text())
    section = Section(text(), text(), (), (table, Table((text(),), ((text(),),), text(), fold=True)), (text(),))
    notices = [Notice("failure", text(), {text(): text()}, {text(): text()}) for _ in range(2)]
    page = Page(
        text(), text(), (section,), tuple(notices[:1]), tuple(notices[1:]), {text(): text()}, {HOSTILE: [HOSTILE, None]}
    )
    reader = Reader(page.html())
    reader.check()
    shown = "".join(reader.words).replace("`", "")  # words between backticks are set as code
    for k in range(next(counter)):
        assert f"{HOSTILE} number {k}.".replace("`", "") in shown
    assert json.loads(reader.data) == {HOSTILE: [HOSTILE, None]}


def test_the_policy_forbids_scripts_and_network():
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert "script-src" not in rules
    assert rules["img-src"] == "data:"


def test_json_that_is_not_strict_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        Page("t", "", (), data={"a": math.nan}).html()


@pytest.mark.parametrize("rows", [1, FOLD, FOLD + 2, FOLD + 3, 5 * FOLD])
def test_long_tables_are_folded_and_lose_no_row(rows):
    reader = Reader(Table(("n", "text", "empty"), tuple((k, f"row{k}", None) for k in range(rows))).html())
    words = [word for word in reader.words if word.startswith("row")]
    assert words == [f"row{k}" for k in range(rows)]
    assert ("details" in reader.tags) == (rows > FOLD + 2)
    assert "empty" not in reader.words


def test_numbers_have_three_digits_and_the_right_value():
    rng = np.random.default_rng(0)
    superscripts = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
    for value in np.concatenate((10 ** rng.uniform(-12, 12, 2000), -(10 ** rng.uniform(-4, 8, 500)))):
        text = number(float(value))
        plain = re.sub("^10(?=[⁻⁰-⁹¹²³])", "1×10", text)  # 10⁻⁴ is 1×10⁻⁴
        back = float(plain.replace(",", "").replace("×10", "e").translate(superscripts))
        assert back == pytest.approx(value, rel=5.001e-3), text
        digits = re.sub(r"×10.*|[-.,]", "", plain).strip("0")
        assert len(digits) <= 3, text
        assert len(text) <= 11, text


def test_texts_are_cleaned_everywhere():
    text = clean(("a\x1b[31m\u202eb\ud800", {"x" * 10 * TEXT_LIMIT: ["y\r\n\tz"]}))
    assert text[0] == "a�[31m�b�"
    ((name, values),) = text[1].items()
    assert len(name) == TEXT_LIMIT
    assert values == ["y z"]


def test_a_page_is_saved_with_its_folders(tmp_path):
    path = Page("Tést \ud800", "", ()).save(tmp_path / "a" / "b.html")
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
