"""Pure mathematics on tensors: no state, no files, torch only.

What filters and systems of one's own are written with; the other modules are for the package itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach

if TYPE_CHECKING:
    from . import rotation
    from .gaussian import DiagonalNoise, FullNoise, condition, propagate

__getattr__ = attach(__name__, {"gaussian": ("DiagonalNoise", "FullNoise", "condition", "propagate"), "rotation": ()})

__all__ = ["DiagonalNoise", "FullNoise", "condition", "propagate", "rotation"]
