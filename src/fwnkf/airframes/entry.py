"""One airframe in one JSON file: frame, motors, propellers, IMU, mount, spectra, source and licence.

A file is checked field by field when it is read, and written by ``fwnkf airframe`` from a log.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from ..errors import DataError, UnknownNameError, listed, shown
from ..plain import is_text

FORMAT = 1
FILE_LIMIT = 1 << 16
"""Largest size of a file in bytes; one with six channels has about 5,000."""
TEXT_LIMIT, BANDS_LIMIT, LINES_LIMIT, SPECTRA_LIMIT = 300, 256, 64, 4
UNITS = {"gyro": "rad/s", "accel": "m/s²"}
"""Sensors and their units; a density has the square of the unit, per Hz."""
AXES = ("x", "y", "z")
UNKNOWN = "unknown"
"""What stands in a field of which nothing is known: no field is left out."""
FOLDER = Path(__file__).with_name("entries")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Line:
    """A line of the spectrum.

    >>> Line("x", hz=96.8, width_hz=3.0, amplitude=0.2).hz
    96.8
    """

    axis: str
    """``"x"``, ``"y"`` or ``"z"``."""
    hz: float
    """As it appears at the sampling rate of the spectrum: a line above half of it is folded."""
    width_hz: float
    """At half power."""
    amplitude: float
    """Of a sine with the power of the line."""


@dataclass(frozen=True)
class Spectrum:
    """Density of one sensor in flight, as means over bands.

    >>> shipped(list_airframes()[0]).spectra[0].sensor
    'gyro'
    """

    sensor: str
    """``"gyro"`` or ``"accel"``."""
    unit: str
    """``"rad/s"`` or ``"m/s²"``."""
    rate_hz: float
    """Sampling rate; the spectrum reaches to half of it."""
    seconds: float
    """In flight, that were averaged."""
    edges_hz: tuple[float, ...]
    """Of the bands; one more than there are densities."""
    density: Mapping[str, tuple[float, ...]]
    """By axis: the square of the unit, per Hz. Times the widths of the bands and summed, it is the variance."""
    lines: tuple[Line, ...]
    """The strongest first."""


@dataclass(frozen=True)
class Airframe:
    """An airframe with what its inertial sensors measured. Texts are ``"unknown"`` where nothing is known.

    >>> airframe = shipped(list_airframes()[0])
    >>> [line.axis for line in airframe.lines("gyro_x")][:1]
    ['x']
    """

    name: str
    """Small letters, digits and hyphens."""
    frame: str
    """Type and size: ``"hexacopter, 550 mm"``."""
    motors: str
    """Number and model."""
    props: str
    """Diameter, pitch and number of blades."""
    imu: str
    """Sensor, or the flight controller with its filters."""
    mount: str
    """How the sensor is mounted: hard, foam, isolated."""
    firmware: str
    """Of the flight controller."""
    source: str
    """Where the log is."""
    licence: str
    """Of the entry, as SPDX spells it."""
    spectra: tuple[Spectrum, ...]
    """Of gyroscope and accelerometer, or of one of them."""

    def lines(self, channel: str) -> tuple[Line, ...]:
        """The lines of one channel, the strongest first.

        Args:
            channel: such as ``"gyro_x"``.

        Returns:
            Frequencies, widths and amplitudes, as :class:`fwnkf.Lines` takes them.
        """
        sensor, _, axis = channel.partition("_")
        return tuple(line for one in self.spectra if one.sensor == sensor for line in one.lines if line.axis == axis)

    def save(self, path: str | Path) -> Path:
        """Write the file.

        Args:
            path: to a ``.json`` file.

        Returns:
            The path.
        """
        path = Path(path)
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False)
        # a list of numbers, or a line of the spectrum, in one line of the file
        text = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda match: re.sub(r"\s+", " ", match[0]), text)
        path.write_text(text + "\n", encoding="utf-8")
        return path


def read(path: str | Path) -> Airframe:
    """Read and check a file.

    Args:
        path: a ``.json`` file.

    Returns:
        The airframe.

    Raises:
        DataError: the file is not one; the message names the field.

    >>> read(FOLDER / f"{list_airframes()[0]}.json").spectra[0].unit
    'rad/s'
    """
    path = Path(path)
    try:
        if path.stat().st_size > FILE_LIMIT:
            raise DataError(f"{path} has {path.stat().st_size:,} bytes; an airframe has at most {FILE_LIMIT:,}")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not JSON: {error}") from error
    return _Reader(str(path)).airframe(content)


def list_airframes() -> list[str]:
    """The names of the airframes that come with the package.

    Returns:
        The names, in order.

    >>> len(list_airframes()) > 3
    True
    """
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def shipped(name: str) -> Airframe:
    """An airframe that comes with the package.

    Args:
        name: one of :func:`list_airframes`.

    Returns:
        The airframe.

    >>> shipped(list_airframes()[0]).name == list_airframes()[0]
    True
    """
    if name not in list_airframes():
        raise UnknownNameError(f"no airframe is called {shown(name)}; there are: {listed(list_airframes())}")
    return read(FOLDER / f"{name}.json")


@dataclass(frozen=True)
class _Reader:
    """Values of a file, each of which is checked; ``where`` begins every message."""

    where: str

    def airframe(self, content: Any) -> Airframe:
        known = self.fields(content, Airframe, "the file", {"format"})
        if known["format"] != FORMAT or isinstance(known["format"], bool):
            self.refuse("format", f"{FORMAT} is read", known["format"])
        if not is_text(content):
            self.refuse("a text", "characters are wanted", "half of a surrogate pair")
        texts = {item.name: self.text(known[item.name], item.name) for item in fields(Airframe)[:-1]}
        if not _NAME.fullmatch(texts["name"]):
            self.refuse("name", "small letters, digits and single hyphens are wanted", texts["name"])
        if texts["licence"] == UNKNOWN:
            self.refuse("licence", "others must know what they may do with the entry", UNKNOWN)
        items = self.list(known["spectra"], "spectra", SPECTRA_LIMIT)
        spectra = tuple(self.spectrum(item, f"spectra[{number}]") for number, item in enumerate(items))
        if not spectra or len({one.sensor for one in spectra}) < len(spectra):
            self.refuse("spectra", "one for each sensor is wanted", [one.sensor for one in spectra])
        return Airframe(**texts, spectra=spectra)

    def spectrum(self, content: Any, at: str) -> Spectrum:
        known = self.fields(content, Spectrum, at)
        sensor, rate = known["sensor"], self.positive(known["rate_hz"], f"{at}.rate_hz")
        if sensor not in list(UNITS) or known["unit"] != UNITS[sensor]:
            wanted = ", ".join(f"{name} in {unit}" for name, unit in UNITS.items())
            self.refuse(f"{at}.sensor", f"{wanted} are read", (sensor, known["unit"]))
        edges = self.numbers(known["edges_hz"], f"{at}.edges_hz", BANDS_LIMIT + 1)
        if len(edges) < 2 or any(high <= low for low, high in pairwise(edges)) or edges[-1] > 0.51 * rate:
            self.refuse(f"{at}.edges_hz", "at least two, rising to half of rate_hz at most, are wanted", edges[:5])
        axes = known["density"]
        if not isinstance(axes, dict) or not axes or not set(axes) <= set(AXES):
            self.refuse(f"{at}.density", "a mapping from x, y and z is wanted", axes)
        density = {axis: self.numbers(axes[axis], f"{at}.density.{axis}", BANDS_LIMIT) for axis in axes}
        for axis, values in density.items():
            if len(values) != len(edges) - 1:
                self.refuse(f"{at}.density.{axis}", f"{len(edges) - 1} values for {len(edges)} edges", len(values))
        lines = self.list(known["lines"], f"{at}.lines", LINES_LIMIT)
        return Spectrum(
            sensor, UNITS[sensor], rate, self.positive(known["seconds"], f"{at}.seconds"), edges, density,
            tuple(self.line(item, f"{at}.lines[{number}]", density) for number, item in enumerate(lines)),
        )  # fmt: skip

    def line(self, content: Any, at: str, axes: Mapping[str, Any]) -> Line:
        known = self.fields(content, Line, at)
        if known["axis"] not in list(axes):
            self.refuse(f"{at}.axis", f"an axis with a density is wanted: {', '.join(axes)}", known["axis"])
        names = ("hz", "width_hz", "amplitude")
        return Line(known["axis"], *(self.positive(known[name], f"{at}.{name}") for name in names))

    def fields(self, content: Any, cls: Any, at: str, more: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
        wanted = {item.name for item in fields(cls)} | more
        if not isinstance(content, dict) or set(content) != wanted:
            names = set(content) if isinstance(content, dict) else set()
            missing, unknown = listed(sorted(wanted - names)), listed(sorted(map(str, names - wanted)))
            raise DataError(f"{self.where}: {at}: missing {missing or 'nothing'}; unexpected {unknown or 'nothing'}")
        return content

    def text(self, value: Any, at: str) -> str:
        if not isinstance(value, str) or not value.strip() or len(value) > TEXT_LIMIT:
            self.refuse(
                at, f"a text of at most {TEXT_LIMIT} characters is wanted, {UNKNOWN!r} if it is not known", value
            )
        return value

    def list(self, value: Any, at: str, most: int) -> Sequence[Any]:
        if not isinstance(value, list) or len(value) > most:
            self.refuse(at, f"a list of at most {most} is wanted", type(value).__name__)
        return value

    def numbers(self, value: Any, at: str, most: int) -> tuple[float, ...]:
        return tuple(self.positive(item, at) for item in self.list(value, at, most))

    def positive(self, value: Any, at: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            self.refuse(at, "positive numbers are wanted", value)
        return float(value)

    def refuse(self, at: str, wanted: str, value: Any) -> NoReturn:
        raise DataError(f"{self.where}: {at} is {shown(value)}; {wanted}")
