"""DIDO, quadrotor flights with strong rotor vibration: clean IMU signals, and the vertical."""

from tasks.dido.attitude import Attitude
from tasks.dido.denoise import Denoise
from tasks.interface import Task

TASKS: tuple[Task, ...] = (Denoise(), Attitude())
