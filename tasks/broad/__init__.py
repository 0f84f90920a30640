"""BROAD: orientation of a hand-held IMU that is tapped on or lies beside a vibrating phone."""

from tasks.broad.experiment import broad
from tasks.broad.inclination import Inclination
from tasks.broad.orientation import Orientation
from tasks.interface import Task

__all__ = ["TASKS", "broad"]

TASKS: tuple[Task, ...] = (Inclination(), Orientation())
