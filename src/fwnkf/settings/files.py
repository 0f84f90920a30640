"""Files of settings that ground stations and configurators load."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..plain import printable
from .catalogue import Firmware
from .suggestion import Suggestion


@dataclass(frozen=True)
class FileFormat:
    """A format of files with settings.

    >>> FileFormat("Mission Planner", (".param", ".parm"), ("ArduPilot",)).suffixes[0]
    '.param'
    """

    name: str
    """In words."""
    suffixes: tuple[str, ...]
    """Of file names, the usual one first."""
    firmware: tuple[Firmware, ...]
    """Whose settings it can hold; empty for a file that is not about a firmware."""


QGROUNDCONTROL = FileFormat("QGroundControl", (".params",), ("PX4", "ArduPilot"))
MISSION_PLANNER = FileFormat("Mission Planner", (".param", ".parm"), ("ArduPilot",))
BETAFLIGHT = FileFormat("Betaflight CLI", (".txt",), ("Betaflight",))
KALIBR = FileFormat("Kalibr imu.yaml", (".yaml", ".yml"), ())
FORMATS = (QGROUNDCONTROL, MISSION_PLANNER, BETAFLIGHT, KALIBR)
"""All formats."""
USUAL: dict[Firmware, FileFormat] = {
    "PX4": QGROUNDCONTROL,
    "ArduPilot": MISSION_PLANNER,
    "Betaflight": BETAFLIGHT,
}
"""The format for a file whose name has no suffix."""
INT32, REAL32 = 6, 9
"""MAV_PARAM_TYPE of MAVLink."""


def format_of(path: str | Path, firmware: Firmware | None = None) -> FileFormat:
    """The format of a file by its name, or by the firmware where the name has no suffix.

    Args:
        path: the file.
        firmware: of the vehicle; None if it is not known yet, and then only the suffix is checked.

    Returns:
        The format.

    Raises:
        ConfigError: no format has this suffix, or the format is not for this firmware.

    >>> format_of("notch.params").name, format_of("notch", "Betaflight").name
    ('QGroundControl', 'Betaflight CLI')
    """
    suffix = Path(path).suffix.lower()
    known = "; ".join(f"{', '.join(item.suffixes)} for {item.name}" for item in FORMATS)
    if not suffix and firmware is not None:
        return USUAL[firmware]
    found = next((item for item in FORMATS if suffix in item.suffixes), None)
    if found is None:
        reason = f"no file of settings ends in {suffix}" if suffix else "the log does not say whose settings to write"
        raise ConfigError(f"{path}: {reason}; known are {known}")
    if firmware is not None and found.firmware and firmware not in found.firmware:
        raise ConfigError(f"{path}: {found.name} does not load settings of {firmware}; known are {known}")
    return found


def settings_text(
    suggestions: Iterable[Suggestion], form: FileFormat, *, source: str = "", vehicle: int = 1, component: int = 1
) -> str:
    """A file of settings as text; what speaks for each setting stands above it as a comment.

    Args:
        suggestions: to write, all of them; see :func:`fwnkf.settings.significant`.
        form: one of the formats of :data:`FORMATS` for a firmware.
        source: the log or command behind them, for the header.
        vehicle: MAVLink system id, for QGroundControl.
        component: MAVLink component id, likewise.

    Returns:
        The text.

    Raises:
        ConfigError: the format does not hold settings of a firmware, or not of this one.

    >>> from fwnkf.settings import find
    >>> rows = [Suggestion.of(find("INS_HNTCH_FREQ"), 87.3, why="A fixed line.")]
    >>> print(settings_text(rows, format_of("notch.param")).splitlines()[-1])
    INS_HNTCH_FREQ,87
    """
    rows = list(suggestions)
    wrong = [row.name for row in rows if row.firmware not in form.firmware]
    if wrong:
        raise ConfigError(f"{form.name} does not load {', '.join(wrong)}; see fwnkf.settings.format_of")
    lines = [comment(f"Suggested by fwnkf{' from ' + source if source else ''}; check before flight")]
    if form is QGROUNDCONTROL:
        lines = [comment(f"Onboard parameters for Vehicle {vehicle}"), *lines]
        lines.append(comment("Vehicle-Id Component-Id Name Value Type"))
    for row in rows:
        lines += [comment(line) for line in _reasons(row)]
        if form is QGROUNDCONTROL:
            kind = INT32 if row.whole else REAL32
            lines.append("\t".join((str(vehicle), str(component), row.name, row.text, str(kind))))
        elif form is MISSION_PLANNER:
            lines.append(f"{row.name},{row.text}")
        else:
            lines.append(f"set {row.name} = {row.text}")
    if form is BETAFLIGHT and rows:
        lines.append("save")
    return "\n".join(lines) + "\n"


def comment(text: str) -> str:
    """One line of a comment in ASCII, which every reader of these files accepts.

    >>> comment("0.35 m/s² of flight\\n1.ulg")
    '# 0.35 m/s2 of flight\\\\n1.ulg'
    """
    plain = unicodedata.normalize("NFKD", printable(text)).replace("√", "sqrt ").replace("–", "-")
    return "# " + plain.encode("ascii", "replace").decode("ascii")


def _reasons(row: Suggestion) -> Sequence[str]:
    was = "" if row.current is None else f" (in the log: {row.current:g})"
    costs = "" if row.delay is None else f"; adds {1e3 * row.delay:.2g} ms of delay at 20 Hz"
    gain = "" if row.gain is None else f" Held-out gain: {row.gain}{costs}."
    return (f"{row.name}{was}: {row.why}{gain}",)
