"""Plain values: rows as strict JSON has them, texts that can be written, and text as a terminal can show it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """NaN (no value) becomes null; infinity becomes the string ``"inf"``.

    >>> plain({"nees": float("nan"), "mse": [float("inf"), 1]})
    {'nees': None, 'mse': ['inf', 1]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def number(value: Any) -> Any:
    """Back from :func:`plain`: the words for infinity as the number.

    >>> number("-inf"), number("fast"), number(None)
    (-inf, 'fast', None)
    """
    return float(value) if value in ("inf", "-inf") else value


def printable(text: str) -> str:
    """Text with escapes for what a terminal would obey or hide: control characters, ANSI escapes, bidi controls.

    >>> print(printable("a\\x1b[31mb \\u202egpj.exe"))
    a\\x1b[31mb \\u202egpj.exe
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


def printable_lines(text: str) -> str:
    """The same for text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


def is_text(value: Any) -> bool:
    r"""Whether all texts in a plain value are of characters: JSON and YAML can hold half of one, which nothing writes.

    >>> is_text({"channels": ["gps"]}), is_text(["\ud800"])
    (True, False)
    """
    waiting = [value]  # not by recursion: a value from a file may be deeper than Python calls
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if any("\ud800" <= letter <= "\udfff" for letter in item):
                return False
        elif isinstance(item, Mapping):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set)):
            waiting += item
    return True
