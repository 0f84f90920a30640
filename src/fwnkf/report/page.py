"""A report as one HTML file without network or scripts: questions, each with an answer, figures and tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal

from .drawing import Drawing
from .page_style import STYLE
from .wording import number

__all__ = ["Notice", "Page", "Section", "Table"]

Cell = str | float | int | None
Level = Literal["good", "info", "warning", "failure"]

FOLD = 8
"""Rows of a table beyond which the others are folded away under a line that opens them."""
LONG = 24
"""Characters of a cell from which its column may break lines."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"
"""Content security policy: should anything from a file ever pass as markup, it may load and run nothing."""
SIGNS: Mapping[str, tuple[str, str]] = {
    "good": ("✓", "OK"),
    "info": ("i", "Note"),
    "warning": ("!", "Warning"),
    "failure": ("✕", "Failure"),
}
"""Sign and word of each level, because colour alone is not seen by everyone."""

_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Table:
    """Figures beside a drawing. Numbers have three digits; a column without any value is left out.

    >>> "<td" in Table(("channel", "NIS"), (("gyro_x", 1.02),)).html()
    True
    """

    columns: tuple[str, ...]
    """Headers."""
    rows: tuple[tuple[Cell, ...], ...]
    """Cells of each row: text, number or None."""
    caption: str = ""
    """Above the table."""
    fold: bool = False
    """Whether all of it is folded away."""

    def html(self) -> str:
        """The table, in a box that scrolls sideways on its own.

        Returns:
            Markup.
        """
        shown, rest = (self.rows, ()) if self.fold else (self.rows[:FOLD], self.rows[FOLD:])
        if len(rest) <= 2:  # a line to open would take as much room
            shown, rest = self.rows, ()
        caption = f'<p class="caption">{_text(self.caption)}</p>' if self.caption and not self.fold else ""
        used = [k for k in range(len(self.columns)) if any(row[k] is not None for row in self.rows)]
        marks = {k: _mark([row[k] for row in self.rows]) for k in used}
        head = "".join(f"<th{marks[k]}>{_text(self.columns[k])}</th>" for k in used)

        def box(rows: tuple[tuple[Cell, ...], ...]) -> str:
            lines = ("".join(f"<td{marks[k]}>{_cell(row[k])}</td>" for k in used) for row in rows)
            body = "".join(f"<tr>{line}</tr>" for line in lines)
            return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'

        if self.fold:
            return _details(f"{self.caption or 'Table'} ({_counted(len(shown), 'row')})", box(shown))
        return caption + box(shown) + (_details(f"{len(rest)} more rows", box(rest)) if rest else "")


@dataclass(frozen=True)
class Section:
    """One question of the reader: the answer in plain English, drawings, and tables with the figures behind it.

    >>> "<h2" in Section("Is it consistent?", "Yes.").html("q1")
    True
    """

    question: str
    """The heading."""
    answer: str
    """One or two sentences."""
    drawings: tuple[Drawing, ...] = ()
    """Figures."""
    tables: tuple[Table, ...] = ()
    """Tables."""
    notes: tuple[str, ...] = ()
    """Remarks below."""

    def html(self, anchor: str) -> str:
        """The section, in two columns of about the same height where the screen is wide.

        Args:
            anchor: by which the page links to it.

        Returns:
            Markup.
        """
        wide = "".join(_figure(drawing) for drawing in self.drawings if drawing.wide)
        blocks = [(_figure(drawing), drawing.height) for drawing in self.drawings if not drawing.wide]
        shown = [table for table in self.tables if table.rows]
        text = "".join(table.html() for table in shown) + "".join(
            f'<p class="note">{_text(note)}</p>' for note in self.notes
        )
        if text:
            blocks.append((f"<div>{text}</div>", sum(0.05 * min(len(table.rows), FOLD) + 0.1 for table in shown)))
        columns: list[list[str]] = [[], []]
        heights = [0.0, 0.0]
        for block, height in blocks:
            place = heights.index(min(heights))
            columns[place].append(block)
            heights[place] += height
        boxes = "".join(f"<div>{''.join(column)}</div>" for column in columns if column)
        return (
            f'<section id="{anchor}"><h2>{_text(self.question)}</h2><p class="answer">{_text(self.answer)}</p>'
            + wide
            + (f'<div class="{"columns" if len(blocks) > 1 else "column"}">{boxes}</div>' if boxes else "")
            + "</section>"
        )


@dataclass(frozen=True)
class Notice:
    """Something that the reader must know first: one sentence, what belongs to it by name, and more folded away.

    >>> "Samples are missing." in Notice("warning", "Samples are missing.").html()
    True
    """

    level: Level
    """How severe it is."""
    what: str
    """The sentence."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Such as "What to do"."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Such as "Evidence"; the first name is that of the line that opens all of them."""

    def html(self) -> str:
        """The notice as a card.

        Returns:
            Markup.
        """
        sign, word = SIGNS[self.level]
        return (
            f'<div class="notice {self.level}"><p class="what"><span class="badge"><span class="sign" '
            f'aria-hidden="true">{sign}</span> {word}</span> {_text(self.what)}</p>'
            + _definitions(self.details)
            + (_details(next(iter(self.more)), _definitions(self.more)) if self.more else "")
            + "</div>"
        )


@dataclass(frozen=True)
class Page:
    """A whole report.

    >>> page = Page("flight.ulg", "61.7 s", (Section("Is <b> escaped?", "Yes."),))
    >>> "Is &lt;b&gt; escaped?" in page.html(), "<script" in page.html()
    (True, False)
    """

    title: str
    """The heading."""
    subtitle: str
    """Below the heading."""
    sections: tuple[Section, ...]
    """Questions and answers."""
    notices: tuple[Notice, ...] = ()
    """What the reader must know first."""
    asides: tuple[Notice, ...] = ()
    """Notices of less weight, folded away."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """A few key figures by name, below the notices."""
    data: Any = None
    """Values of strict JSON that are embedded for programs: the element ``<script type="application/json">``."""

    def html(self) -> str:
        """The text of the file.

        Returns:
            HTML that needs no other file.
        """
        anchors = [f"q{k}" for k in range(1, len(self.sections) + 1)]
        links = "".join(
            f'<li><a href="#{anchor}">{_text(section.question)}</a></li>'
            for anchor, section in zip(anchors, self.sections, strict=True)
        )
        facts = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(text)}</dd></div>" for name, text in self.facts.items())
        parts = [
            f"<header><h1>{_text(self.title)}</h1><p>{_text(self.subtitle)}</p></header><main>",
            *(notice.html() for notice in self.notices),
            _folded(self.asides),
            f'<dl class="facts">{facts}</dl>' if facts else "",
            f"<nav><details><summary>Contents</summary><ol>{links}</ol></details></nav>" if links else "",
            *(section.html(anchor) for section, anchor in zip(self.sections, anchors, strict=True)),
            "</main>",
            _data(self.data),
        ]
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style></head>\n<body>"
            + "\n".join(part for part in parts if part)
            + "\n</body></html>\n"
        )

    def save(self, path: str | Path) -> Path:
        """Write the file, with the folders above it.

        Args:
            path: the file.

        Returns:
            The file.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.html(), encoding="utf-8", errors="replace")
        return target


def _definitions(items: Mapping[str, str]) -> str:
    inside = "".join(f"<dt>{_text(name)}</dt><dd>{_text(text)}</dd>" for name, text in items.items())
    return f"<dl>{inside}</dl>" if inside else ""


def _folded(notices: tuple[Notice, ...]) -> str:
    if not notices:
        return ""
    return _details(_counted(len(notices), "further note"), "".join(notice.html() for notice in notices))


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{_text(summary)}</summary>{content}</details>"


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _figure(drawing: Drawing) -> str:
    caption = f"<figcaption>{_text(drawing.caption)}</figcaption>" if drawing.caption else ""
    wide = ' class="wide"' if drawing.wide else ""
    return f'<figure{wide}><div class="scroll">{drawing.markup}</div>{caption}</figure>'


def _data(data: Any) -> str:
    """JSON that cannot end its element: ``<`` is written as an escape of JSON."""
    if data is None:
        return ""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")
    return f'<script type="application/json" id="data">{text}</script>'


def _text(text: str) -> str:
    """Escaped text; words between backticks are set as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=True))


def _cell(cell: Cell) -> str:
    return _text(cell if isinstance(cell, str) else number(cell))


def _mark(cells: list[Cell]) -> str:
    """The class of a column: numbers to the right, long texts with line breaks."""
    texts = [cell for cell in cells if isinstance(cell, str)]
    if not texts:
        return ' class="number"'
    return ' class="long"' if max(map(len, texts)) > LONG else ""
