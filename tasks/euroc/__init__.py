"""EuRoC MAV: inertial navigation (``paper``, ``strict``), and attitude over whole flights from the gyroscope."""

from tasks.euroc.experiment import euroc
from tasks.euroc.gyro import EurocGyro
from tasks.euroc.paper import EurocPaper
from tasks.euroc.strict import EurocStrict
from tasks.interface import Task

__all__ = ["TASKS", "euroc"]

TASKS: tuple[Task, ...] = (EurocPaper(), EurocStrict(), EurocGyro())
