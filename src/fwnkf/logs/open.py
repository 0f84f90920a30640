"""Open a log of any format."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from ..errors import DataError
from .log import Log

READERS: Mapping[str, tuple[str, str]] = {
    "mcap": ("mcap", "Mcap"),
    "bag": ("rosbag", "Bag"),
    "ros2": ("rosbag2", "Bag2"),
    "ulog": ("ulog", "ULog"),
    "dataflash": ("dataflash", "DataFlash"),
    "blackbox": ("blackbox", "Blackbox"),
    "table": ("tables", "TableLog"),
}
"""Module and class of the reader of each format; a reader is imported when a log of its format is opened."""

MAGIC: Mapping[bytes, str] = {
    b"\x89MCAP0\r\n": "mcap",
    b"#ROSBAG V": "bag",
    b"SQLite format 3\x00": "ros2",
    b"ULog\x01\x12\x35": "ulog",
    b"\xa3\x95": "dataflash",
    b"H Product:Blackbox": "blackbox",
    b"PAR1": "table",
}
"""First bytes of a file, and its format."""

SUFFIXES: Mapping[str, str] = {
    ".mcap": "mcap",
    ".bag": "bag",
    ".db3": "ros2",
    ".ulg": "ulog",
    ".ulog": "ulog",
    ".bin": "dataflash",
    ".log": "dataflash",
    ".bbl": "blackbox",
    ".bfl": "blackbox",
    ".csv": "table",
    ".parquet": "table",
}

PACKED: Mapping[bytes, str] = {
    b"\x1f\x8b": "gunzip",
    b"PK\x03\x04": "unzip",
    b"\x28\xb5\x2f\xfd": "zstd -d",
    b"BZh": "bunzip2",
    b"\xfd7zXZ": "unxz",
    b"7z\xbc\xaf": "7z x",
}
"""First bytes of compressed files, and the command that unpacks them."""


def recognise(path: str | Path) -> str:
    """The format of a log, one of :data:`READERS`: by its first bytes, else by its suffix."""
    path = Path(path)
    try:
        if path.is_dir():
            return "ros2"
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    for magic, name in MAGIC.items():
        if start.startswith(magic):
            return name
    for magic, command in PACKED.items():
        if start.startswith(magic):
            raise DataError(f"{path} is compressed; unpack it first: {command} {path.name}")
    name = SUFFIXES.get(path.suffix.lower(), "")
    if not name:
        raise DataError(
            f"{path} is not a log of a known format: neither its first bytes nor its suffix {path.suffix!r} are known; "
            f"formats: MCAP, ROS bags, ULog, DataFlash, blackbox, CSV, Parquet ({', '.join(SUFFIXES)})"
        )
    return name


def open_log(path: str | Path) -> Log:
    r"""Open a log; its format is recognised by its first bytes, else by its suffix.

    Args:
        path: the file, or the folder of a ROS 2 bag.

    Returns:
        The log. Topics and parameters are known, samples are read on demand.

    Raises:
        DataError: the file cannot be read, or its format is not known.
        MissingExtraError: a package that reads this format is not installed.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> _ = path.write_text("t [s],gyro_x [deg/s]\n0.0,90\n0.01,180\n")
    >>> log = open_log(path)
    >>> log.format, log.topics["run"].fields
    ('CSV', ('t', 'gyro_x'))
    """
    module, name = READERS[recognise(path)]
    reader = getattr(importlib.import_module(f".{module}", __package__), name)
    log: Log = reader(path)
    return log
