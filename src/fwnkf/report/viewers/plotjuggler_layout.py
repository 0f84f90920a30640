"""A layout for PlotJuggler: plots of signals in tabs, and the file that they are loaded from without a question."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

from .scene import COLOURS, Outline, Signals
from .topics import fields, signals_topic

ROWS = 4
"""Plots of a tab."""
PALE = {0: "#7fb8d8", 1: "#eaae7f", 2: "#7fceb9", 3: "#e5bcd3", 4: "#f2cf7f", 5: "#aad9f4"}
"""The colours of the ends of intervals: those of the values, halfway to white."""


def plotjuggler_layout(outline: Outline, file: str) -> str:
    """The layout of a scene in a file with this name, which is beside the layout."""
    root = ElementTree.Element("root")
    main = ElementTree.SubElement(root, "tabbed_widget", {"parent": "main_window", "name": "Main Window"})
    for family, parts in outline.families().items():
        for first in range(0, len(parts), ROWS):
            _tab(main, family if len(parts) <= ROWS else f"{family} {first // ROWS + 1}", parts[first : first + ROWS])
    ElementTree.SubElement(main, "currentTabIndex", index="0")
    ElementTree.SubElement(root, "use_relative_time_offset", enabled="1")
    loaded = ElementTree.SubElement(root, "previouslyLoaded_Datafiles")
    info = ElementTree.SubElement(loaded, "fileInfo", filename=file, prefix="")
    plugin = ElementTree.SubElement(info, "plugin", ID="DataLoad MCAP")
    topics = ";".join(signals_topic(part) for part in outline.signals.values())
    ElementTree.SubElement(
        plugin, "parameters", use_timestamp="0", use_mcap_log_time="1", clamp_large_arrays="0", max_array_size="500",
        selected_topics=topics,
    )  # fmt: skip
    ElementTree.indent(root, " ")
    return f"<?xml version='1.0' encoding='UTF-8'?>\n{ElementTree.tostring(root, encoding='unicode')}\n"


def _tab(main: ElementTree.Element, title: str, parts: Sequence[Signals]) -> None:
    tab = ElementTree.SubElement(main, "Tab", containers="1", tab_name=title)
    share = ";".join([f"{1 / len(parts):.6f}"] * len(parts))
    inside = ElementTree.SubElement(tab, "Container")
    splitter = ElementTree.SubElement(inside, "DockSplitter", orientation="-", sizes=share, count=str(len(parts)))
    for part in parts:
        area = ElementTree.SubElement(splitter, "DockArea", name=part.title)
        plot = ElementTree.SubElement(area, "plot", mode="TimeSeries", style="Lines", flip_x="false", flip_y="false")
        ElementTree.SubElement(plot, "limitY")
        for channel, kind, place in fields(part):
            colour = COLOURS[place % len(COLOURS)] if kind == "value" else PALE[place % len(PALE)]
            ElementTree.SubElement(plot, "curve", name=f"{signals_topic(part)}/{channel}/{kind}", color=colour)
