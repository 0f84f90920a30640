"""Twenty flights of a racing quadrotor: the angular rate while the gyro is missing and the motor commands go on."""

from tasks.interface import Task
from tasks.racer.command import add_commands
from tasks.racer.task import Racer

__all__ = ["TASKS", "add_commands"]

TASKS: tuple[Task, ...] = (Racer(),)
