"""Objects in a few words: one line for ``repr``, a small table for notebooks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

from .errors import shown
from .plain import printable


def one_line(title: str, facts: Mapping[str, str]) -> str:
    """One line, with what is known; empty facts are left out.

    >>> one_line("ekf on linear", {"state": "x 2", "controls": "", "step": "0.1 s"})
    '<ekf on linear: state x 2; step 0.1 s>'
    """
    known = "; ".join(f"{name} {text}".strip() for name, text in facts.items() if text)
    return printable(f"<{title}: {known}>" if known else f"<{title}>")


def html_card(
    title: str, facts: Mapping[str, str], head: Sequence[str] = (), rows: Sequence[Sequence[str]] = (), note: str = ""
) -> str:
    """HTML for a notebook: a title, facts in two columns, and a table. All text is escaped; nothing is loaded.

    >>> html_card("<b>", {"state": "x & y"}).count("<b>"), "x &amp; y" in html_card("<b>", {"state": "x & y"})
    (0, True)
    """
    listed = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in facts.items()
        if text
    )
    parts = [f"<div><strong>{escape(title)}</strong>"]
    if listed:
        parts.append(f"<table><tbody>{listed}</tbody></table>")
    if rows:
        titles = "".join(f"<th>{escape(name)}</th>" for name in head)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        parts.append(f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>")
    if note:
        parts.append(f"<div>{escape(note)}</div>")
    return "".join(parts) + "</div>"


def step_words(seconds: float | None, any_length: bool) -> str:
    """The nominal step of a filter or system, and whether it takes others.

    >>> step_words(0.01, True), step_words(0.01, False), step_words(None, True)
    ('0.01 s, or dt', '0.01 s', 'counted')
    """
    return "counted" if seconds is None else f"{seconds:g} s" + (", or dt" if any_length else "")


def learned_words(module: Any) -> str:
    """How many numbers of a module are parameters.

    Args:
        module: a ``torch.nn.Module``.
    """
    count = sum(item.numel() for item in module.parameters() if item.requires_grad)
    return counted(count, "number") if count else "nothing"


def counted(count: int, what: str) -> str:
    """So many of something.

    >>> counted(1, "step"), counted(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def about(kind: type) -> str:
    """The first line of the docstring of a class, without markup.

    >>> about(type("A", (), {"__doc__": "Moves by ``F x``, as :class:`B`.\\n\\nMore."}))
    'Moves by F x, as B.'
    """
    return re.sub(r":\w+:(?=`)|`", "", (kind.__doc__ or "").strip().partition("\n")[0])


def option_words(config: Any, leave_out: Set[str] = frozenset()) -> str:
    """The options of a config, a dataclass, that are not those by default.

    >>> from dataclasses import make_dataclass
    >>> Line = make_dataclass("Line", [("hz", float, 1.0), ("count", int, 1)])
    >>> option_words(make_dataclass("Config", [("noise", tuple), ("solve", str, "qr")])((Line(23.0),), "qr"))
    'noise=[Line(hz=23.0)]'
    """
    chosen = [
        (field.name, getattr(config, field.name))
        for field in fields(config)
        if field.name not in leave_out and not _same(getattr(config, field.name), field.default)
    ]
    return ", ".join(f"{name}={_words(value)}" for name, value in chosen)


def _same(value: object, default: object) -> bool:
    return value is default or value == () or (type(value) is type(default) and bool(value == default))


def _words(value: object) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({option_words(value)})"
    if isinstance(value, tuple) and value and all(is_dataclass(item) for item in value):
        return f"[{', '.join(map(_words, value))}]"
    return shown(value)
