"""EuRoC MAV: inertial navigation from a given initial state, under the protocols ``paper`` and ``strict``."""

from tasks.euroc.paper import EurocPaper
from tasks.euroc.strict import EurocStrict
from tasks.interface import Task

TASKS: tuple[Task, ...] = (EurocPaper(), EurocStrict())
