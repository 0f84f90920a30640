"""ArduPilot logs (DataFlash ``.bin``), with or without damage.

The file describes its own messages: ``FMT`` their layout, ``FMTU``, ``UNIT`` and ``MULT`` units and multipliers. It is
scanned once for the places of its messages.
"""

from __future__ import annotations

import re
from array import array
from itertools import islice
from pathlib import Path

import numpy as np

from ..errors import DataError
from . import ardupilot
from .log import LOG_READERS, Message, Source
from .records import Damage, Field, RecordLog, Series
from .roles import whole

HEAD = b"\xa3\x95"
FMT = 128
FMT_LENGTH = 89
NUMBERS = {
    "b": ("<i1", 1.0), "B": ("<u1", 1.0), "M": ("<u1", 1.0), "h": ("<i2", 1.0), "H": ("<u2", 1.0), "i": ("<i4", 1.0),
    "I": ("<u4", 1.0), "q": ("<i8", 1.0), "Q": ("<u8", 1.0), "g": ("<f2", 1.0), "f": ("<f4", 1.0), "d": ("<f8", 1.0),
    "c": ("<i2", 0.01), "C": ("<u2", 0.01), "e": ("<i4", 0.01), "E": ("<u4", 0.01), "L": ("<i4", 1e-7),
}  # fmt: skip
TEXTS = {"n": 4, "N": 16, "Z": 64}
ARRAY = 32
"""Numbers of a field of type ``a``."""
INSTANCES = {"I", "C", "Inst", "Instance", "IMU"}
"""Names of the field with the number of the sensor, in logs that have no FMTU."""
INSTANCE_LIMIT = 32
LAYOUT_LIMIT = 16
"""Layouts of messages of one name; a log has more than one if the firmware was changed."""
TEXT_LIMIT = 10_000


@LOG_READERS.register("dataflash")
class DataFlash(RecordLog):
    """An ArduPilot log. Instances of a message are topics of their own: ``IMU``, ``IMU.1``, ``IMU.2``.

    Values are in the units of ``UNIT``, multipliers applied.
    """

    format = "DataFlash"

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        if self.data[:2] != HEAD:
            raise DataError(f"{self.path} is not a DataFlash log: its first bytes are {bytes(self.data[:8])!r}")
        self._heads: dict[bytes, tuple[array[int], int]] = {}
        self._types: dict[int, Series] = {}
        self._texts: dict[str, dict[str, tuple[int, int]]] = {}
        self._columns: dict[str, list[str]] = {}
        self._layouts: dict[str, dict[tuple[str, tuple[str, ...]], Series]] = {}
        damage = Damage()
        self._define(FMT, "FMT", "BBnNZ", ["Type", "Length", "Name", "Format", "Columns"])
        self._scan(damage)
        self._scale()
        self._start()
        self._divide()
        self.parameters = self._settings()
        text = zip(self._seconds("MSG"), self.text("MSG", "Message", TEXT_LIMIT), strict=False)
        self.messages = tuple(Message(time, "info", line) for time, line in text)
        notes = damage.notes()
        if not any(series.places for series in self.series.values() if series.clock):
            where = f" ({notes[0]})" if notes else ""
            raise DataError(f"{self.path}: no samples in this DataFlash log{where}; download it again from the vehicle")
        self.notes = tuple(notes)
        self.facts = ardupilot.facts(self, self.text("VER", "FWS", 1), self.messages)
        ardupilot.derive(self)
        self._name_topics()
        self._sources: tuple[Source, ...] | None = None

    def sources(self) -> tuple[Source, ...]:
        """The standard signals of the log, the best of each role first."""
        if self._sources is None:
            self._sources = ardupilot.sources(self)
        return self._sources

    def airborne(self) -> tuple[tuple[float, float], ...]:
        """Times between take-off and landing by the events of the log."""
        return ardupilot.airborne(self)

    def text(self, kind: str, field: str, limit: int) -> list[str]:
        """Texts of a field of a kind of message."""
        entry = self._texts.get(kind, {}).get(field)
        if entry is None:
            return []
        offset, size = entry
        places = islice(self.series[kind].places, limit)
        return [_text(self.data[place + offset : place + offset + size]) for place in places]

    def _seconds(self, kind: str) -> list[float]:
        series = self.series.get(kind)
        return self.read(kind, []).time.tolist() if series is not None and series.places and series.clock else []

    def _scan(self, damage: Damage) -> None:
        data, end, heads = self.data, len(self.data), self._heads
        fmt = HEAD + bytes([FMT])
        place = 0
        pattern, known = re.compile(re.escape(fmt)), 1
        while place < end:
            head = data[place : place + 3]
            entry = heads.get(head)
            why = "no message of a known type"
            if entry is not None and place + entry[1] <= end:
                why = self._format(place) if head == fmt else ""
            elif entry is not None or end - place < 3:
                why = "the file ends within a message"
            if entry is not None and not why:
                entry[0].append(place)
                place += entry[1]
                continue
            if known != len(heads):
                pattern = re.compile(HEAD + b"[" + b"".join(re.escape(key[2:]) for key in heads) + b"]", re.DOTALL)
                known = len(heads)
            following = self._resume(pattern, place + 1)
            damage.add(place, following, why)
            place = following

    def _resume(self, pattern: re.Pattern[bytes], place: int) -> int:
        """The next message that another one follows, or the end of the file."""
        end = len(self.data)
        for candidate in pattern.finditer(self.data, place):
            start = candidate.start()
            stop = start + self._heads[self.data[start : start + 3]][1]
            if stop == end or self.data[stop : stop + 2] == HEAD:
                return start
        return end

    def _format(self, place: int) -> str:
        """Read a description of messages; returns what is wrong with it, or an empty string."""
        body = self.data[place + 3 : place + FMT_LENGTH]
        kind, length = body[0], body[1]
        name, layout, columns = _text(body[2:6]), _text(body[6:22]), _text(body[22:86])
        names = columns.split(",") if columns else []
        if kind == FMT:
            return "" if length == FMT_LENGTH else "the description of FMT"
        fit = len(names) == len(layout) == len(set(names)) and all(re.fullmatch(r"\w+", label) for label in names)
        if not re.fullmatch(r"\w{1,4}", name, re.ASCII) or not fit:
            return f"a description of messages that does not fit: {name[:16]!r}"
        if not all(letter in NUMBERS or letter in TEXTS or letter == "a" for letter in layout):
            return f"a description of messages with an unknown type: {name} {layout[:16]!r}"
        return self._define(kind, name, layout, names, length)

    def _define(self, kind: int, name: str, layout: str, names: list[str], length: int = FMT_LENGTH) -> str:
        fields: dict[str, Field] = {}
        texts: dict[str, tuple[int, int]] = {}
        offset = 3
        for letter, label in zip(layout, names, strict=True):
            if letter in TEXTS:
                texts[label] = (offset, TEXTS[letter])
                offset += TEXTS[letter]
            elif letter == "a":
                fields |= {f"{label}[{index}]": Field(offset + 2 * index, "<i2") for index in range(ARRAY)}
                offset += 2 * ARRAY
            else:
                dtype, factor = NUMBERS[letter]
                fields[label] = Field(offset, dtype, factor)
                offset += int(dtype[2:])
        if offset != length:
            return f"a description of {name} whose length {length} is not that of its fields, {offset}"
        layouts = self._layouts.setdefault(name, {})
        series = layouts.get((layout, tuple(names)))
        if series is None:
            if len(layouts) >= LAYOUT_LIMIT:
                return f"more than {LAYOUT_LIMIT} descriptions of {name}"
            self.work.count("fields of definitions", len(fields) + len(texts))
            series = layouts[layout, tuple(names)] = self._series(name, fields, names)
            self._texts[series.name] = texts
            self._columns[series.name] = names
        self._types[kind] = series
        self._heads[HEAD + bytes([kind])] = (series.places, length)
        return ""

    def _series(self, name: str, fields: dict[str, Field], names: list[str]) -> Series:
        label = name
        while label in self.series:  # the same message with another layout
            label += "_"
        clocks = [clock for clock in ("SampleUS", "TimeUS", "TimeMS") if clock in fields and clock in names]
        received = "TimeUS" if clocks[:2] == ["SampleUS", "TimeUS"] else None
        tick = 1e-3 if clocks[:1] == ["TimeMS"] else 1e-6
        self.series[label] = Series(label, name, fields, clocks[0] if clocks else "", received, tick)
        return self.series[label]

    def _scale(self) -> None:
        """Units and multipliers of FMTU."""
        units = dict(zip(self._letters("UNIT"), self.text("UNIT", "Label", 256), strict=False))
        # stored as float32, so that 1e-6 is 9.99999997e-07
        numbers = [float(f"{number:.6g}") for number in self._column("MULT", "Mult")]
        multipliers = dict(zip(self._letters("MULT"), numbers, strict=False))
        kinds = [whole(number) for number in self._column("FMTU", "FmtType")]
        rows = zip(kinds, self.text("FMTU", "UnitIds", 512), self.text("FMTU", "MultIds", 512), strict=False)
        for kind, of_unit, of_factor in rows:
            series = self._types.get(kind)
            if series is None:
                continue
            for name, entry in series.fields.items():
                index = self._columns[series.name].index(name.partition("[")[0])
                unit = of_unit[index : index + 1]
                factor = multipliers.get(of_factor[index : index + 1], 1.0)
                if unit == "#":
                    series.instance = name
                scaled = entry.factor != 1.0 or not np.isfinite(factor) or factor == 0.0
                label = units.get(unit, "").strip()
                series.fields[name] = entry._replace(
                    factor=entry.factor if scaled else factor, unit="" if label == "UNKNOWN" else label
                )

    def _letters(self, kind: str) -> list[str]:
        return [chr(whole(number) & 127) for number in self._column(kind, "Id")]

    def _column(self, kind: str, field: str) -> list[float]:
        series = self.series.get(kind)
        if series is None or field not in series.fields:
            return []
        return self._gather(np.frombuffer(series.places, np.int64), series.fields[field]).tolist()

    def _start(self) -> None:
        """Time zero: the clock of the first message that has one."""
        timed = [series for series in self.series.values() if series.places and series.clock and series.tick == 1e-6]
        if timed:
            first = min(timed, key=lambda series: series.places[0])
            entry = first.fields[first.received or first.clock]
            place = first.places[0] + entry.offset
            self._zero = int.from_bytes(self.data[place : place + int(entry.dtype[2:])], "little")
        self.start_ns = self._zero * 1000

    def _divide(self) -> None:
        """A topic for each instance of a message."""
        for name, series in list(self.series.items()):
            label = series.instance
            if not label and not self.series.get("FMTU", series).places:
                label = next((field for field in series.fields if field in INSTANCES), "")
            if not label or label not in series.fields or not series.places:
                continue
            places = np.frombuffer(series.places, np.int64)
            numbers = self._gather(places, series.fields[label])
            unique = np.unique(numbers)
            if len(unique) > INSTANCE_LIMIT:
                continue
            for number in unique.tolist():
                chosen = array("q", places[numbers == number].tobytes())
                key = name if number == 0 else f"{name}.{number:g}"
                self.series[key] = Series(
                    key, series.kind, series.fields, series.clock, series.received, series.tick, chosen, label
                )
            if 0 not in unique:
                del self.series[name]

    def _settings(self) -> dict[str, float | str]:
        names = self.text("PARM", "Name", len(self.data))
        values = self._column("PARM", "Value")
        return dict(zip(names, values, strict=False))


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("utf-8", "replace")
