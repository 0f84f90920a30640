"""Held-out ranges of body-worn radios, on a part of the UIP-DB data set."""

from tasks.interface import Task
from tasks.uipdb.ranges import HeldOutRanges

TASKS: tuple[Task, ...] = (HeldOutRanges(),)
