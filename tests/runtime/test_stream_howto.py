"""The page on live measurements: its code runs as written."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import fwnkf

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "stream.md"


@pytest.fixture(scope="module")
def page() -> tuple[dict, str]:
    """What the code of the page defines, and what it prints."""
    printed: list[str] = []
    names: dict = {"print": lambda *items: printed.append(" ".join(str(item) for item in items))}
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)), names)
    return names, "\n".join(printed)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_the_code_runs_and_ends_healthy_after_a_jump(page):
    names, printed = page
    assert printed.splitlines()[0].endswith("ok")
    assert printed.splitlines()[-1] == "25.0 ok"
    assert isinstance(names["stream"], fwnkf.Stream)


def test_every_option_is_described():
    text = PAGE.read_text(encoding="utf-8") + (fwnkf.Stream.__doc__ or "")
    parameters = inspect.signature(fwnkf.Stream).parameters.values()
    options = [item.name for item in parameters if item.kind is item.KEYWORD_ONLY]
    assert "history" in options
    for name in options:
        assert f"`{name}" in text or f"{name}=" in text, name
