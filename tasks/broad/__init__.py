"""BROAD: orientation of a hand-held IMU that is tapped on or lies beside a vibrating phone."""

from tasks.broad.experiment import broad
from tasks.broad.inclination import Inclination
from tasks.broad.orientation import Orientation
from tasks.broad.shaken import add_commands
from tasks.interface import Task

__all__ = ["TASKS", "add_commands", "broad"]

TASKS: tuple[Task, ...] = (Inclination(), Orientation())
