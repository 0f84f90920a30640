"""Open a log of any format: those of this package, and those of installed packages with a reader of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

from ..errors import ConfigError, DataError, FwnkfError
from .choice import Chosen
from .log import LOG_READERS, Log

GROUP = "fwnkf.log_readers"
"""Entry points of installed packages with readers of other formats: ``name = "module:ReaderClass"``."""

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

BUILT_IN = frozenset((*MAGIC.values(), *SUFFIXES.values()))
"""Formats of this package: their first bytes and suffixes stand here, so that no reader is imported to ask it."""

PACKED: Mapping[bytes, str] = {
    b"\x1f\x8b": "gunzip",
    b"PK\x03\x04": "unzip",
    b"\x28\xb5\x2f\xfd": "zstd -d",
    b"BZh": "bunzip2",
    b"\xfd7zXZ": "unxz",
    b"7z\xbc\xaf": "7z x",
}
"""First bytes of compressed files, and the command that unpacks them."""


class Format(NamedTuple):
    """A format of logs that can be opened."""

    name: str
    suffixes: tuple[str, ...]
    package: str
    """The package that reads it."""


class Plugins(NamedTuple):
    """Readers outside this package by the names of their formats, and what is wrong with those that cannot be used."""

    readers: Mapping[str, type[Log]]
    faults: tuple[str, ...]


_packages: dict[str, str] = {}
"""The package of each format that was found by an entry point."""


def plugins() -> Plugins:
    """Readers that were registered by hand, and those of installed packages, which are imported here.

    What is imported is what was installed with an entry point, never what a file names.
    """
    faults = []
    for entry in entry_points(group=GROUP):
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
        try:
            reader = entry.load()
            if not (isinstance(reader, type) and issubclass(reader, Log) and (reader.magic or reader.suffixes)):
                raise ConfigError(f"{entry.value} is no subclass of fwnkf.logs.Log with magic or suffixes")
            if LOG_READERS.name_of(reader) != entry.name:
                LOG_READERS.register(entry.name)(reader)
            _packages[entry.name] = package
        except Exception as error:  # whatever a module of others raises when it is imported
            faults.append(
                f"the package {package} is installed to read {entry.name} logs, but cannot be used: "
                f"{type(error).__name__}: {error}; update it or uninstall it"
            )
    return Plugins({name: LOG_READERS[name] for name in LOG_READERS if name not in BUILT_IN}, tuple(faults))


def formats() -> tuple[Format, ...]:
    """All formats that can be opened, those of installed packages included.

    Returns:
        One row for each format.

    >>> next(row.suffixes for row in formats() if row.name == "ulog")
    ('.ulg', '.ulog')
    """
    own = [Format(name, tuple(key for key, value in SUFFIXES.items() if value == name), "fwnkf") for name in BUILT_IN]
    others = plugins().readers.items()
    return (
        *sorted(own),
        *(Format(name, reader.suffixes, _packages.get(name, reader.__module__)) for name, reader in sorted(others)),
    )


def log_suffixes(given: Iterable[str]) -> set[str]:
    """Those of the given suffixes, in lower case, that logs of a known format have.

    >>> log_suffixes([".ulg", ".txt"])
    {'.ulg'}
    """
    found = set(given)
    if found <= SUFFIXES.keys():
        return found
    others = {suffix for reader in plugins().readers.values() for suffix in reader.suffixes}
    return found & (SUFFIXES.keys() | others)


def recognise(path: str | Path) -> str:
    """The format of a log, a name of :data:`LOG_READERS`: by its first bytes, else by its suffix.

    Formats of other packages are looked for if it is none of this package.
    """
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
    suffix = path.suffix.lower()
    command = next((command for magic, command in PACKED.items() if start.startswith(magic)), None)
    if command is None and suffix in SUFFIXES:
        return SUFFIXES[suffix]
    others = plugins()
    for name, reader in others.readers.items():
        if any(start.startswith(magic) for magic in reader.magic):
            return name
    for name, reader in others.readers.items():
        if suffix in reader.suffixes:
            return name
    if command is not None:
        raise DataError(f"{path} is compressed; unpack it first: {command} {path.name}")
    known = ", ".join((*SUFFIXES, *(item for reader in others.readers.values() for item in reader.suffixes)))
    raise DataError(
        f"{path} is not a log of a known format: neither its first bytes nor its suffix {path.suffix!r} are known; "
        f"formats: MCAP, ROS bags, ULog, DataFlash, blackbox, CSV, Parquet ({known})"
        + "".join(f"; {fault}" for fault in others.faults)
    )


def open_log(path: str | Path, *, time: str = "") -> Log:
    r"""Open a log; its format is recognised by its first bytes, else by its suffix.

    Args:
        path: the file, or the folder of a ROS 2 bag.
        time: the column or field with the time, with a factor to seconds where its unit is not known:
            ``ticks*1e-4``. By default the column that is called so, or the stamps of messages.

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
    name = recognise(path)
    if time and name != "table":
        return Chosen(open_log(path), (), time=time)
    reader: Callable[..., Log] = LOG_READERS[name]
    if name in BUILT_IN:
        return reader(Path(path), time) if time else reader(Path(path))
    try:
        return reader(Path(path))
    except (FwnkfError, OSError):
        raise
    except Exception as error:  # a reader of others should raise DataError, but a user must see whose fault it is
        package = _packages.get(name, "that registers it")
        raise DataError(
            f"{path}: the reader of {name} logs of the package {package} failed: {type(error).__name__}: {error}; "
            "tell its authors"
        ) from error
