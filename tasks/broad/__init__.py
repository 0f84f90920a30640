"""BROAD: orientation of a hand-held IMU that is tapped on or lies beside a vibrating phone."""

from tasks.broad.inclination import Inclination
from tasks.broad.orientation import Orientation
from tasks.interface import Task

TASKS: tuple[Task, ...] = (Inclination(), Orientation())
