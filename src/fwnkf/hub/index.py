"""The filters that are published with the source of this package: their index, and the folder that holds them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

INDEX = Path(__file__).with_name("models.json")
"""Name, title and figure of each filter; written by ``python -m tasks card``, part of the wheel."""


def shipped() -> dict[str, dict[str, Any]]:
    """The index of the shipped filters.

    Returns:
        By name: title, filter, what was measured and the figure.

    >>> all({"title", "measured", "figure"} <= row.keys() for row in shipped().values())
    True
    """
    rows: dict[str, dict[str, Any]] = json.loads(INDEX.read_text(encoding="utf-8"))
    return rows


def models_folder() -> Path | None:
    """The folder with the shipped filters.

    Returns:
        ``$FWNKF_MODELS``, or the folder of the checkout that is imported; None for an installed wheel.

    >>> folder = models_folder()
    >>> folder is None or folder.is_dir()
    True
    """
    if chosen := os.environ.get("FWNKF_MODELS"):
        return Path(chosen)
    root = Path(__file__).parents[3]
    return root / "models" if (root / "pyproject.toml").is_file() and (root / "models").is_dir() else None
