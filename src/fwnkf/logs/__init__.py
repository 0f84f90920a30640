"""Readers of logs: PX4, ArduPilot, Betaflight, ROS bags, MCAP, and tables of numbers in CSV and Parquet files."""

from .choice import choose
from .log import Dropout, Log, Message, Source, Stream, Topic
from .open import open_log
from .table import Table, find_tables, read_table

__all__ = [
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
