"""Running a filter on a stream of measurements with a compiled step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach

if TYPE_CHECKING:
    from .compiled import compile_step
    from .stream import Stream

__getattr__ = attach(__name__, {"compiled": ("compile_step",), "stream": ("Stream",)})

__all__ = ["Stream", "compile_step"]
