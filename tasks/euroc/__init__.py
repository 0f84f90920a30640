"""EuRoC MAV: inertial navigation from a given initial state, under the protocols ``paper`` and ``strict``."""

from tasks.euroc.experiment import euroc
from tasks.euroc.paper import EurocPaper
from tasks.euroc.strict import EurocStrict
from tasks.interface import Task

__all__ = ["TASKS", "euroc"]

TASKS: tuple[Task, ...] = (EurocPaper(), EurocStrict())
