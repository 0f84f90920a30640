"""Figures of tutorials as SVG inside the page, so that they follow its light or dark theme."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt

from fwnkf.report._style import COLOURS
from fwnkf.report.drawing import svg

plt.rcParams.update(
    {
        "axes.prop_cycle": plt.cycler(color=COLOURS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.figsize": (7.0, 3.2),
        "figure.constrained_layout.use": True,
        "legend.frameon": False,
    }
)


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """The figures that a block has left open, as reST; a PNG of each is the thumbnail of the gallery."""
    paths = block_vars["image_path_iterator"]
    parts = []
    for number in plt.get_fignums():
        figure = plt.figure(number)
        path = next(paths)
        figure.savefig(path, dpi=120)
        name = path.rsplit("/", 1)[-1].removesuffix(".png")
        titles = [axis.get_title() or axis.get_ylabel() for axis in figure.axes]
        label = "; ".join(title for title in titles if title) or name
        parts.append(f".. raw:: html\n\n    <figure>{svg(figure, name, label)}</figure>\n")
    plt.close("all")
    return "\n" + "\n".join(parts)
