"""Readers of logs: PX4, ArduPilot, Betaflight, ROS bags, MCAP, and tables of numbers in CSV and Parquet files."""

from typing import TYPE_CHECKING

from ..lazy import attach

if TYPE_CHECKING:
    from .choice import choose
    from .log import LOG_READERS, Dropout, Log, Message, Source, Stream, Topic
    from .open import open_log
    from .table import Table, find_tables, read_table

__getattr__ = attach(
    __name__,
    {
        "choice": ("choose",),
        "log": ("LOG_READERS", "Dropout", "Log", "Message", "Source", "Stream", "Topic"),
        "open": ("open_log",),
        "table": ("Table", "find_tables", "read_table"),
    },
)

__all__ = [
    "LOG_READERS",
    "Dropout",
    "Log",
    "Message",
    "Source",
    "Stream",
    "Table",
    "Topic",
    "choose",
    "find_tables",
    "open_log",
    "read_table",
]
