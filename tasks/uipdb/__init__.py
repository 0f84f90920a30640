"""UIP-DB: held-out ranges of body-worn radios on a part of the data set, and the paper's setting on its own files."""

from tasks.interface import Task
from tasks.uipdb.experiment import uipdb
from tasks.uipdb.ranges import HeldOutRanges

__all__ = ["TASKS", "uipdb"]

TASKS: tuple[Task, ...] = (HeldOutRanges(),)
