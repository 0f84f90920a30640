"""Betaflight logs (blackbox), also those of INAV and Cleanflight.

A file may hold several sessions, one for each time that the craft was armed; the longest is read and the others are
named in the notes.
"""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path

import numpy as np

from ..errors import DataError
from .frames import (
    COUNT,
    FIELD_LIMIT,
    MEAN,
    PREVIOUS,
    READERS,
    STRAIGHT,
    TAG8_4,
    TURN,
    Layout,
    Session,
    decode,
    group_fields,
)
from .log import LOG_READERS, Source, Stream
from .records import Damage, RecordLog
from .roles import SourceList, vector

PRODUCT = b"H Product:Blackbox"
LINES = 2_000
"""Lines of a header."""
LINE = 10_000
"""Bytes of a line."""
GYRO_SCALED = 6
"""Value of ``debug_mode`` with which ``debug`` holds the gyro before its filters."""
GRAVITY = 9.80665
ENCODINGS = {0, 1, 3, 6, 9} | set(READERS)
USUAL = {"minthrottle": 1150, "vbatref": 4095}
UNITS = {"gyroUnfilt": "deg/s", "gyroADC": "deg/s", "time": "µs"}


@LOG_READERS.register("blackbox")
class Blackbox(RecordLog):
    """A Betaflight log. Its topic ``frames`` has the fields of the header in the units of the log."""

    format = "Betaflight blackbox"

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        starts = [match.start() for match in re.finditer(re.escape(PRODUCT), self.data)]
        if not starts or starts[0] != 0:
            raise DataError(f"{self.path} is not a Betaflight log: its first bytes are {bytes(self.data[:8])!r}")
        bounds = list(zip(starts, [*starts[1:], len(self.data)], strict=True))
        longest = sorted(bounds, key=lambda bound: bound[0] - bound[1])
        failures: list[str] = []
        for begin, end in longest[:8]:
            damage = Damage()
            try:
                self._read_session(begin, end, damage)
                break
            except DataError as error:
                failures.append(str(error))
        else:
            raise DataError(f"{self.path}: {failures[0]}; copy it again from the craft")
        notes = damage.notes()
        unfiltered = "gyroUnfilt[0]" in self._names or self._number("debug_mode", 0) == GYRO_SCALED
        if "gyroADC[0]" in self._names and not unfiltered:
            notes.append(
                "the gyro of this log (gyroADC) went through the filters of the craft, which may have removed lines; "
                "log gyroUnfilt, or set debug_mode to GYRO_SCALED, to see them"
            )
        if len(bounds) > 1:
            others = ", ".join(f"{stop - start:,} bytes at {start:,}" for start, stop in bounds if start != begin)
            notes.append(
                f"{len(bounds)} sessions in this file: the longest is read, at byte {begin:,}; others: {others[:500]}"
            )
        self.notes = tuple(notes)
        self._facts()
        self.derive("frames", self._names, self._frames)
        motors = [name for name in self._names if re.fullmatch(r"motor\[\d+\]", name)]
        if motors:
            self.derive("motors", [f"motor_{i + 1}" for i in range(len(motors))], self._motors)
        self._name_topics()

    def sources(self) -> tuple[Source, ...]:
        """The standard signals of the log, the best of each role first."""
        listed = SourceList(self.topics)
        degrees = self._gyro_scale() * math.pi / 180
        accel = _scaled(vector("accel", "accSmooth[#]"), GRAVITY / (self._number("acc_1G", 2048) or 2048))
        gyros = [("unfiltered", "gyroUnfilt[#]"), ("filtered", "gyroADC[#]")]
        if self._number("debug_mode", 0) == GYRO_SCALED:
            gyros.insert(1, ("debug", "debug[#]"))
        for label, fields in gyros:
            listed.add("imu", label, "frames", _scaled(vector("gyro", fields), degrees) | accel)
        for label, fields in gyros[:-1]:
            listed.add("gyro", label, "frames", _scaled(vector("gyro", fields), degrees))
        listed.add("gyro_filtered", "", "frames", _scaled(vector("gyro", "gyroADC[#]"), degrees))
        listed.add("accel", "", "frames", accel)
        poles = self._number("motor_poles", 14) or 14
        rotors = [name for name in self._names if re.fullmatch(r"eRPM\[\d+\]", name)]
        hertz = 100 / 60 / (poles / 2)
        listed.add("rotor", "", "frames", {f"rotor_{i + 1}": (name, hertz) for i, name in enumerate(rotors)})
        if "motors" in self.topics:
            listed.add("motor", "", "motors", {name: (name, 1.0) for name in self.topics["motors"].fields})
        return tuple(listed.sources)

    # ---- the header ----

    def _read_session(self, begin: int, end: int, damage: Damage) -> None:
        data = self.data[begin:end]
        header, place = _header(data, begin)
        session = _session(header, begin)
        values = decode(data, place, begin, session, damage)
        if len(values) == 0:
            first = damage.notes()
            raise DataError(f"no frames in the session at byte {begin:,}" + (f" ({first[0]})" if first else ""))
        self._names = session.layouts[ord("I")].names
        self._values = values
        ticks = np.unwrap(values[:, self._names.index("time")].astype(np.float64), period=TURN)
        self.start_ns = int(ticks[0] * 1000)
        self._time = (ticks - ticks[0]) * 1e-6
        self.parameters = {key: _value(text) for key, text in header.items() if not key.startswith("Field ")}
        number, of = session.part
        step = self._number("looptime", 0) * (self._number("pid_process_denom", 1) or 1) * of / number * 1e-6
        self._nominal = step if 1e-5 < step < 1 else None

    def _number(self, key: str, usual: float) -> float:
        value = self.parameters.get(key, usual)
        return usual if isinstance(value, str) else float(value)

    def _gyro_scale(self) -> float:
        """Degrees per second of one count."""
        text = str(self.parameters.get("gyro_scale", "1"))
        try:
            bits = int(text, 16) if text.startswith("0x") else None
            scale = float(text) if bits is None else struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]
        except ValueError:
            return 1.0
        return float(scale) if 1e-6 < scale < 1e6 else 1.0

    def _facts(self) -> None:
        known: dict[str, float | str] = {"firmware": "Betaflight"}
        for key, name in (("Firmware revision", "firmware"), ("Craft name", "vehicle"), ("Board information", "board")):
            text = str(self.parameters.get(key, ""))[:80]
            if text:
                known[name] = text
        self.facts = known

    # ---- topics ----

    def _frames(self) -> Stream:
        columns = {name: self._values[:, index].astype(np.float64) for index, name in enumerate(self._names)}
        units = {name: UNITS[name.partition("[")[0]] for name in self._names if name.partition("[")[0] in UNITS}
        return Stream("frames", self._time, columns, units, nominal=self._nominal)

    def _motors(self) -> Stream:
        """Motor commands from 0 to 1 between the outputs for no and for full throttle."""
        motors = [i for i, name in enumerate(self._names) if re.fullmatch(r"motor\[\d+\]", name)]
        limits = re.findall(r"\d+", str(self.parameters.get("motorOutput", "")))
        low, high = (float(limits[0][:9]), float(limits[1][:9])) if len(limits) == 2 else (1000.0, 2000.0)
        if high <= low:
            low, high = 1000.0, 2000.0
        scaled = np.clip((self._values[:, motors] - low) / (high - low), 0.0, 1.0)
        columns = {f"motor_{i + 1}": scaled[:, i] for i in range(len(motors))}
        return Stream("motors", self._time, columns, nominal=self._nominal)


def _scaled(columns: dict[str, tuple[str, float]], factor: float) -> dict[str, tuple[str, float]]:
    return {name: (field, factor) for name, (field, _) in columns.items()}


def _value(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) and "_" not in text else text


def _header(data: bytes, begin: int) -> tuple[dict[str, str], int]:
    """Lines ``H key:value``, and the place behind them."""
    header: dict[str, str] = {}
    place = 0
    for _ in range(LINES):
        if data[place : place + 2] != b"H ":
            return header, place
        stop = data.find(b"\n", place, place + LINE)
        if stop < 0:
            raise DataError(f"the header at byte {begin + place:,} has a line without an end")
        key, _, value = data[place + 2 : stop].decode("utf-8", "replace").partition(":")
        header[key.strip()[:100]] = value.strip()
        place = stop + 1
    raise DataError(f"the header at byte {begin:,} has more than {LINES:,} lines")


def _session(header: dict[str, str], begin: int) -> Session:
    layouts: dict[int, Layout] = {}
    for letter in "IPSGH":
        if f"Field {letter} encoding" not in header:
            continue
        encodings = _numbers(header, f"Field {letter} encoding", begin)
        predictors = _numbers(header, f"Field {letter} predictor", begin)
        # a P frame has the fields of an I frame
        names = header.get(f"Field {'I' if letter == 'P' else letter} name", "").split(",")
        if not len(names) == len(encodings) == len(predictors) <= FIELD_LIMIT or len(set(names)) != len(names):
            raise DataError(f"the header at byte {begin:,} does not describe the fields of {letter} frames")
        if not set(encodings) <= ENCODINGS:
            raise DataError(f"the header at byte {begin:,} has an encoding that is not known: {sorted(set(encodings))}")
        if TAG8_4 in encodings and header.get("Data version", "2") == "1":
            raise DataError(f"the session at byte {begin:,} has data version 1, which is not read; update the firmware")
        layouts[ord(letter)] = Layout(names, predictors, group_fields(encodings))
    intra = layouts.get(ord("I"))
    if intra is None or ord("P") not in layouts or not {"time", "loopIteration"} <= set(intra.names):
        raise DataError(f"the header at byte {begin:,} does not describe I and P frames with a time")
    if {PREVIOUS, STRAIGHT, MEAN, COUNT} & set(intra.predictors):
        raise DataError(f"the header at byte {begin:,} has I frames that depend on others")
    motor = re.findall(r"\d+", header.get("motorOutput", ""))
    constants = {
        4: _whole(header.get("minthrottle"), USUAL["minthrottle"]),
        8: 1500,
        9: _whole(header.get("vbatref"), USUAL["vbatref"]),
        11: _whole(motor[0] if motor else None, 0),
    }
    part = re.fullmatch(r"(\d{1,4})(?:/(\d{1,4}))?", header.get("P interval", "1"))
    number, of = (int(part[1]), int(part[2])) if part and part[2] else (1, int(part[1])) if part else (1, 1)
    if not 0 < number <= of:
        number, of = 1, 1
    return Session(layouts, constants, max(_whole(header.get("I interval"), 32), 1), (number, of))


def _numbers(header: dict[str, str], key: str, begin: int) -> list[int]:
    parts = header.get(key, "").split(",")
    if not all(re.fullmatch(r"\d{1,3}", part) for part in parts):
        raise DataError(f"the header at byte {begin:,} has no numbers in {key!r}")
    return [int(part) for part in parts]


def _whole(text: str | None, usual: int) -> int:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,6}", text) else usual
