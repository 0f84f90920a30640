"""Lorenz and pendulum: tasks on simulated records, and the robustness and ablation studies."""

from tasks.interface import Task
from tasks.simulated.commands import add_commands

TASKS: tuple[Task, ...] = ()

__all__ = ["TASKS", "add_commands"]
