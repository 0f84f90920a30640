"""The site: pages in one order, a reference in groups, and tables that a phone shows whole."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from benchmarks import screenshots, site_check

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

import repository_pages  # noqa: E402

TREE = re.compile(r"```\{toctree\}\n((?::[^\n]*\n)*)\n(.*?)```", re.S)


def entries(name: str) -> list[str]:
    """Pages that the tables of contents of a page have."""
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    place, made = repository_pages.LISTS.get(name, ("", str))
    text = text.replace(place, made()) if place else text
    folder = Path(name).parent
    return [(folder / line).as_posix() for _, body in TREE.findall(text) for line in body.split()]


def test_every_guide_and_result_has_one_place():
    listed = [*entries("index"), *entries("development"), *entries("results/index")]
    assert len(listed) == len(set(listed))
    for folder in ("howto", "concepts", "results"):
        pages = {f"{folder}/{path.stem}" for path in (DOCS / folder).glob("*.md")}
        assert pages - set(listed) == set()
    assert {"results/install", "results/hardening", "design/index"} <= set(entries("development"))


def test_guides_are_ordered_by_what_a_reader_has():
    captions = re.findall(r"^:caption: (.+)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.M)
    things = [f"I have {thing}" for thing in ("a log", "equations", "truth", "a fleet", "a microcontroller")]
    assert captions == ["Learn", *things, "Reference"]


def test_the_landing_page_installs_as_the_readme_does():
    """One way, which works before and after publication."""
    index, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/index.md", "README.md"))
    ways = [set(re.findall(r"^(pip install \S+)", text, re.M)) for text in (index, readme)]
    assert ways[0] == ways[1] == {"pip install '.[logs,plot]'"}
    code = re.findall(r"```python\n(.*?)```", index, re.S)
    assert len(code) == 1
    assert len([line for line in code[0].splitlines() if line.strip()]) <= 10
    assert "![" in index[: index.index("## ")]


def test_every_package_of_the_reference_is_in_a_group():
    packages = repository_pages.public_packages()
    groups = repository_pages.grouped(packages)
    assert sorted(name for names in groups.values() for name in names) == packages
    assert "More" not in groups
    assert repository_pages.grouped(["fwnkf.unheard"]) == {"More": ["fwnkf.unheard"]}


@pytest.mark.skipif(screenshots.browser() is None, reason="no Chromium is installed")
@pytest.mark.parametrize(("columns", "script", "hidden"), [(3, True, 0), (14, True, 0), (14, False, 1)])
def test_no_table_hides_its_last_column_on_a_phone(tmp_path, columns, script, hidden):
    """A wide table with the style and the script of the site; without the script it would be hidden."""
    head = "".join(f"<th>column {k}</th>" for k in range(columns))
    row = "".join(f"<td>{'0.123456789' if k % 3 else ''}</td>" for k in range(columns))
    made = [(DOCS / "_static" / f"tables.{kind}").read_text(encoding="utf-8") for kind in ("css", "js")]
    (tmp_path / "page.html").write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><style>{made[0]}</style><article style="width:350px">'
        f'<div class="table-wrapper"><table class="docutils"><thead><tr>{head}</tr></thead>'
        f"<tbody><tr>{row}</tr></tbody></table></div></article><script>{made[1] if script else ''}</script>",
        encoding="utf-8",
    )
    facts = site_check.look(tmp_path, ["page.html"])["page.html"]
    assert facts["tables"] == 1
    assert len(facts["hidden"]) == hidden
    assert not (tmp_path / "_frame.html").exists()
