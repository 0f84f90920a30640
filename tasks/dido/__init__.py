"""TODO."""

from tasks.interface import Task

TASKS: tuple[Task, ...] = ()
