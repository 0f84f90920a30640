"""Figures as SVG inside a page: escaped, in the colours of the page, and small without losing an extreme value."""

from __future__ import annotations

import io
import re
import warnings
import xml.etree.ElementTree as ElementTree
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..extras import need
from ._style import COLOURS, DOTS, GRID, TRUTH, new_figure, set_look
from .wording import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # runtime shape checks evaluate annotations, and matplotlib is optional
    Axes = Figure = Any

__all__ = ["Drawing", "draw"]

Array = NDArray[np.float64]

WIDTH = 4.6
"""Inches. At the width of a phone a point of such a figure is about a pixel, and text stays readable."""
PIXELS = 640
"""Columns in which long series are thinned."""
BAD = "#C62828"
"""Colour of what is wrong, beside a word that says so."""

VARIABLES = {
    **{colour.lower(): f"var(--c{k})" for k, colour in enumerate(COLOURS)},
    TRUTH.lower(): "var(--ink)",
    DOTS.lower(): "var(--dots)",
    GRID.lower(): "var(--grid)",
    BAD.lower(): "var(--bad)",
    "#ffffff": "var(--paper)",
    "#cccccc": "var(--grid)",  # frames of legends
}
"""Variables of the style sheet that replace the colours of a figure, so that it follows the light or dark page."""

_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMBER = re.compile(r"-?\d+\.\d+")


class Drawing(NamedTuple):
    """A figure for a page.

    >>> Drawing("<svg></svg>", "NIS over time").wide
    False
    """

    markup: str
    """From :func:`svg`."""
    caption: str = ""
    """Plain text."""
    wide: bool = False
    """Whether it scrolls sideways on a narrow screen instead of shrinking."""
    height: float = 1.0
    """In units of its width, with the caption."""


def canvas(rows: int = 1, height: float = 2.7, *, share: bool = True) -> tuple[Figure, list[Axes]]:
    """A figure with stacked panels in the width of a phone."""
    figure = new_figure(WIDTH, height)
    axes = [figure.add_subplot(rows, 1, row + 1) for row in range(rows)]
    for axis in axes:
        if share and axis is not axes[0]:
            axis.sharex(axes[0])
        axis.tick_params(labelbottom=not share or axis is axes[-1])
        set_look(axis)
        axis.tick_params(which="both", labelsize=9)
    return figure, axes


def legend(figure: Figure, axis: Axes) -> None:
    """One legend below a figure, in as many columns as its names leave room for; none for a single line."""
    handles, labels = axis.get_legend_handles_labels()
    if len(handles) > 1:
        columns = 3 if max(map(len, labels)) < 16 else 2 if max(map(len, labels)) < 26 else 1
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8.5, frameon=False)


def log_ticks(axis: Any, low: float, high: float) -> None:
    """Plain numbers at ticks of a logarithmic axis, few enough for a phone (pages do not draw formulas)."""
    ticker = need("matplotlib.ticker", extra="plot")
    subs = (1.0,) if high > 100 * low else (1.0, 3.0) if high > 12 * low else (1.0, 2.0, 5.0)
    axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=7))
    axis.set_major_formatter(lambda value, _: number(value))
    axis.set_minor_locator(ticker.NullLocator())


def draw(figure: Figure, name: str, caption: str = "") -> Drawing:
    """A matplotlib figure as a :class:`Drawing`. Wider figures than a phone's scroll sideways.

    Args:
        figure: the figure.
        name: unique in the page.
        caption: plain text.

    Returns:
        The drawing.

    >>> figure, (axis,) = canvas()
    >>> _ = axis.plot([0, 1], [1, 0])
    >>> draw(figure, "line").markup.startswith("<")
    True
    """
    width, height = (float(size) for size in figure.get_size_inches())
    return Drawing(svg(figure, name, caption or name), caption, width > 1.2 * WIDTH, height / width + 0.1)


def svg(figure: Figure, name: str, label: str) -> str:
    """The ``<svg>`` element of a figure: the same bytes for the same figure, text as text, colours as variables.

    ``name`` is part of the identifiers inside, so that figures of one page do not use each other's clip paths.
    """
    matplotlib = need("matplotlib", extra="plot")
    target = io.StringIO()
    settings = {"svg.fonttype": "none", "svg.hashsalt": name, "text.parse_math": False}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # the browser has other fonts
        plain_text(figure)
        figure.savefig(target, format="svg", transparent=True, metadata=_METADATA)
    root = ElementTree.fromstring(_INVALID.sub("\N{REPLACEMENT CHARACTER}", target.getvalue()))
    _simplify(root)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.attrib.update({"class": "plot", "role": "img", "aria-label": label})
    return ElementTree.tostring(root, encoding="unicode").replace("\n", " ")


def plain_text(figure: Figure) -> Figure:
    """The same figure with every text as it is: a name from a log is no formula."""
    _plain_log_labels(figure)
    for text in figure.findobj(need("matplotlib.text", extra="plot").Text):
        text.set_parse_math(False)
    return figure


def _plain_log_labels(figure: Figure) -> None:
    """Numbers as text where matplotlib by itself labels a logarithmic axis with formulas."""
    ticker = need("matplotlib.ticker", extra="plot")
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if isinstance(axis.get_major_formatter(), ticker.LogFormatter):
            axis.set_major_formatter(lambda value, _: number(value))
        if isinstance(axis.get_minor_formatter(), ticker.LogFormatter):
            axis.set_minor_formatter(ticker.NullFormatter())


def _simplify(element: ElementTree.Element) -> None:
    """Names without namespaces, as HTML has them; no identifiers that nothing refers to; two decimals; variables."""
    element.tag = element.tag.rsplit("}", 1)[-1]
    element.attrib = {name.rsplit("}", 1)[-1]: value for name, value in element.attrib.items()}
    if element.tag not in ("path", "clipPath"):
        element.attrib.pop("id", None)
    for name in ("d", "x", "y", "transform"):
        if name in element.attrib and element.tag != "image":
            element.attrib[name] = " ".join(_NUMBER.sub(_rounded, element.attrib[name]).split())
    if "href" in element.attrib:
        element.attrib["href"] = "".join(element.attrib["href"].split())
    if "style" in element.attrib:
        element.attrib["style"] = _style(element.attrib["style"])
    if element.tag != "text" and not (element.text or "").strip():
        element.text = None
    element.tail = None
    for child in list(element):
        _simplify(child)
        if child.tag in ("style", "metadata") or (child.tag in ("g", "defs") and not len(child) and not child.text):
            element.remove(child)


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


def _style(text: str) -> str:
    parts = [part.strip() for part in text.split(";")]
    parts = [part for part in parts if part and not part.startswith(("font-family", "font-variant"))]
    return ";".join(re.sub("#[0-9a-f]{6}", lambda match: VARIABLES.get(match[0], match[0]), part) for part in parts)


def thin(x: Array, y: Array, *, pixels: int = PIXELS, log: bool = False) -> tuple[Array, Array]:
    """A series with at most two samples a pixel: the smallest and the largest, in their order. No peak is lost.

    >>> x = np.arange(100_000.0)
    >>> y = np.where(x == 12_345, 1.0, 0.0)
    >>> short_x, short_y = thin(x, y, pixels=100)
    >>> len(short_x), float(short_y.max()), float(short_x[short_y.argmax()])
    (200, 1.0, 12345.0)
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    usable = np.isfinite(x) & np.isfinite(y) & ((x > 0) if log else True)
    x, y = x[usable], y[usable]
    if len(x) <= 2 * pixels:
        return x, y
    place = np.log(x) if log else x
    order = np.argsort(place, kind="stable")
    x, y, place = x[order], y[order], place[order]
    span = place[-1] - place[0]
    column = np.minimum(((place - place[0]) / (span or 1.0) * pixels).astype(np.int64), pixels - 1)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    by_value = np.lexsort((y, column))
    stops = np.append(starts[1:], len(x)) - 1
    chosen = np.unique(np.concatenate((by_value[starts], by_value[stops])))
    return x[chosen], y[chosen]
