"""Suggested settings on the command line: the format of their file, a table of them, and the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, DataError
from .output import UsageError, table, wrapped

if TYPE_CHECKING:
    from ..logs.log import Log
    from ..settings import FileFormat, Firmware, Suggestion


def format_of_file(path: Path, firmware: Firmware | None = None) -> FileFormat:
    """The format of ``--params``, by the name of the file."""
    from ..settings import format_of

    try:
        return format_of(path, firmware)
    except ConfigError as error:
        raise UsageError(f"--params {error}") from error


def settings_format(path: Path, log: Log) -> FileFormat:
    """The format of ``--params`` for a log, before it is examined."""
    from ..settings import firmware_of

    said = log.facts.get("firmware")
    form = format_of_file(path, firmware_of(said))
    if form.firmware and firmware_of(said) is None:
        raise DataError(
            f"{log.path}: PX4, ArduPilot or Betaflight did not write this log ({said or 'it names no firmware'}), and "
            "settings have other names elsewhere; the report names frequencies and bandwidths"
        )
    return form


def settings_lines(rows: Sequence[Suggestion], notes: Sequence[str]) -> list[str]:
    """Numbers to type in, for a terminal."""
    lines = ["", "Numbers to type in:" if rows else "Numbers to type in: none."]
    names = {name: name for name in ("parameter", "log", "suggested", "range", "gain", "delay")}
    lines += [f"  {line}" for line in table([_settings_row(row) for row in rows], names)] if rows else []
    lines += [line for why in dict.fromkeys(row.why for row in rows) for line in wrapped(why, "  ")]
    return lines + [line for note in notes for line in wrapped(f"note: {note}", "  ")]


def _settings_row(row: Suggestion) -> dict[str, Any]:
    return {
        "parameter": row.name,
        "log": "" if row.current is None else f"{row.current:g}",
        "suggested": f"{row.text} {row.unit}".rstrip(),
        "range": row.range,
        "gain": "" if row.gain is None else str(row.gain),
        "delay": "" if row.delay is None else f"{1e3 * row.delay:.2g} ms",
    }


def save_text(path: Path, text: str) -> None:
    """Write a file, and the folder it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
