"""Filters from a Hugging Face hub and to it, and the index of the filters that are published with this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach

if TYPE_CHECKING:
    from .index import models_folder, shipped
    from .loading import FILES, download, from_pretrained

__getattr__ = attach(
    __name__,
    {
        "loading": ("FILES", "download", "from_pretrained"),
        "index": ("models_folder", "shipped"),
    },
)

__all__ = ["FILES", "download", "from_pretrained", "models_folder", "shipped"]
