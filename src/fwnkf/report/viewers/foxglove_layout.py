"""A layout for Foxglove, which it imports as JSON: where panels are, and which topics and fields each shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .scene import COLOURS, Outline, Signals
from .topics import BODY, POSE, REMARKS, SCENE, WORLD, fields, image_topic, signals_topic

ROWS = 4
"""Plots below each other; a family with more has tabs."""


def foxglove_layout(outline: Outline) -> dict[str, Any]:
    """The layout of a scene."""
    panels: dict[str, Any] = {}
    left: list[Any] = []
    if outline.tracks:
        left.append(_panel(panels, "3D!track", _scene()))
    for number, name in enumerate(outline.pictures):
        image = {"imageMode": {"imageTopic": image_topic(name)}, "foxglovePanelTitle": name.replace("/", ": ")}
        left.append(_panel(panels, f"Image!picture{number}", image))
    if len(left) > 3:  # pictures in tabs
        tabs = [
            {"title": panels[name]["foxglovePanelTitle"], "layout": name} for name in left if name.startswith("Image!")
        ]
        left = [name for name in left if not name.startswith("Image!")]
        left.append(_panel(panels, "Tab!pictures", {"activeTabIdx": 0, "tabs": tabs}))
    if outline.remarks:
        left.append(_panel(panels, "RosOut!remarks", {"topicToRender": REMARKS, "minLogLevel": 1, "searchTerms": []}))
    columns = [_mosaic(left, "column")] if left else []
    for family, parts in outline.families().items():
        columns.append(_family(panels, family, parts))
    return {
        "configById": panels,
        "globalVariables": {},
        "userNodes": {},
        "playbackConfig": {"speed": 1},
        "layout": _mosaic(columns, "row") if columns else "",
    }


def _panel(panels: dict[str, Any], name: str, config: dict[str, Any]) -> str:
    panels[name] = config
    return name


def _scene() -> dict[str, Any]:
    return {
        "foxglovePanelTitle": "track",
        "followTf": BODY,
        "followMode": "follow-none",
        "fixedFrame": WORLD,
        "scene": {"backgroundColor": "#101214"},
        "transforms": {},
        "topics": {SCENE: {"visible": True}, POSE: {"visible": True, "type": "axis"}},
        "layers": {
            "grid": {"layerId": "foxglove.Grid", "instanceId": "grid", "visible": True, "size": 200, "divisions": 20}
        },
    }


def _family(panels: dict[str, Any], family: str, parts: Sequence[Signals]) -> Any:
    names = [_panel(panels, f"Plot!{part.name.replace('/', '_')}", _plot(part)) for part in parts]
    pages = [names[k : k + ROWS] for k in range(0, len(names), ROWS)]
    if len(pages) == 1:
        return _mosaic(names, "column")
    tabs = [{"title": f"{family} {k + 1}", "layout": _mosaic(page, "column")} for k, page in enumerate(pages)]
    return _panel(panels, f"Tab!{family}", {"activeTabIdx": 0, "tabs": tabs})


def _plot(part: Signals) -> dict[str, Any]:
    paths = [
        {
            "value": f"{signals_topic(part)}.{channel}.{kind}",
            "enabled": True,
            "timestampMethod": "receiveTime",
            "label": channel if kind == "value" else f"{channel} {kind}",
            "color": COLOURS[place % len(COLOURS)] + ("" if kind == "value" else "70"),
            "lineSize": 1.5 if kind == "value" else 0.7,
            "showLine": True,
        }
        for channel, kind, place in fields(part)
    ]
    return {
        "foxglovePanelTitle": part.title,
        "paths": paths,
        "xAxisVal": "timestamp",
        "showXAxisLabels": True,
        "showYAxisLabels": True,
        "showLegend": len(paths) <= 3,  # one of many lines would cover them
        "legendDisplay": "floating",
        "showPlotValuesInLegend": False,
        "isSynced": True,
        "sidebarDimension": 240,
    }


def _mosaic(items: Sequence[Any], direction: str) -> Any:
    """Panels beside or below each other, of equal size: a mosaic divides in two."""
    if len(items) == 1:
        return items[0]
    return {
        "first": items[0],
        "second": _mosaic(items[1:], direction),
        "direction": direction,
        "splitPercentage": 100 / len(items),
    }
