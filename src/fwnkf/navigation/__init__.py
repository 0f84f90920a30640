"""Inertial navigation on recordings: sensors as one sequence of steps, start, fit, filter, smoother and comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach

if TYPE_CHECKING:
    from .estimate import Estimate, Learned, Navigator, adapted
    from .recording import NavigationRecording, Pose
    from .timeline import Readings, Steps

__getattr__ = attach(
    __name__,
    {
        "estimate": ("Estimate", "Learned", "Navigator", "adapted"),
        "recording": ("NavigationRecording", "Pose"),
        "timeline": ("Readings", "Steps"),
    },
)

__all__ = ["Estimate", "Learned", "NavigationRecording", "Navigator", "Pose", "Readings", "Steps", "adapted"]
