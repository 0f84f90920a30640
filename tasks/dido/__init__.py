"""DIDO, quadrotor flights with strong rotor vibration: clean IMU signals, and the vertical."""

from tasks.dido.attitude import Attitude
from tasks.dido.denoise import Denoise
from tasks.dido.experiment import dido
from tasks.interface import Task

__all__ = ["TASKS", "dido"]

TASKS: tuple[Task, ...] = (Denoise(), Attitude())
