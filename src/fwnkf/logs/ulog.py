"""PX4 logs (ULog), with or without damage.

The file is scanned once for the places of its messages. Behind a damaged part reading goes on at the next header that
belongs to a subscribed topic, and a note says where that was.
"""

from __future__ import annotations

import re
import struct
from array import array
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError
from . import px4
from .log import LOG_READERS, Dropout, Message, Source
from .records import Damage, Field, RecordLog, Series

MAGIC = b"ULog\x01\x12\x35"
SYNC = b"\x2f\x73\x13\x20\x25\x0c\xbb\x12"
SYNC_RECORD = b"\x08\x00S" + SYNC
LETTER = re.compile(b"[DS]")
"""Third byte of a sample and of a sync message."""
DEFINITION = re.compile(
    rb"(?s)..(?:F[a-z][a-z0-9_]{1,100}:[a-z]|[IP].(?:char\[|u?int\d{1,2}_t |float )|A..[\x00-\x20][a-z]{4})"
)
KINDS = b"BFIMPQARDLCSO"
TYPES = {
    "int8_t": "<i1", "uint8_t": "<u1", "int16_t": "<i2", "uint16_t": "<u2", "int32_t": "<i4", "uint32_t": "<u4",
    "int64_t": "<i8", "uint64_t": "<u8", "float": "<f4", "double": "<f8", "bool": "<u1", "char": "<u1",
}  # fmt: skip
LEVELS = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")
FIELD_LIMIT = 20_000
"""Numbers in one message, nested ones included; a message has at most 65,535 bytes."""
TEXT_LIMIT = 10_000
"""Text messages that are kept."""


class _Layout(NamedTuple):
    """The samples of a format."""

    fields: dict[str, Field]
    clock: str
    received: str | None
    sizes: set[int]
    """Bytes without the header: with and without the padding at the end."""


@LOG_READERS.register("ulog")
class ULog(RecordLog):
    """A PX4 log. Topics are named as in PX4, further instances with a suffix: ``sensor_accel``, ``sensor_accel.1``."""

    format = "ULog"

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        if self.data[: len(MAGIC)] != MAGIC or len(self.data) < 16:
            raise DataError(f"{self.path} is not a ULog: its first bytes are {bytes(self.data[:8])!r}")
        (self._zero,) = struct.unpack_from("<Q", self.data, 8)
        self.start_ns = self._zero * 1000
        self._formats: dict[str, list[tuple[str, int, str]]] = {}
        self._layouts: dict[str, _Layout] = {}
        self._heads: dict[bytes, tuple[array[int], int]] = {}
        self._identities: dict[int, Series] = {}
        self._settings: dict[str, float | str] = {}
        self._texts: list[Message] = []
        self._lost: list[Dropout] = []
        self._offsets: list[int] = []
        self.information: dict[str, float | str] = {}
        damage = Damage()
        self._scan(damage)
        self.parameters = self._settings
        self.messages = tuple(self._texts)
        self.dropouts = tuple(self._lost)
        notes = damage.notes()
        if not any(series.places for series in self.series.values()):
            where = f" ({notes[0]})" if notes else ""
            raise DataError(f"{self.path}: no samples in this ULog{where}; copy it again from the vehicle")
        self.notes = tuple(notes)
        self.facts = px4.facts(self, self.information)
        px4.derive(self)
        self._name_topics()
        self._sources: tuple[Source, ...] | None = None

    def sources(self) -> tuple[Source, ...]:
        """The standard signals of the log, the best of each role first."""
        if self._sources is None:
            self._sources = px4.sources(self)
        return self._sources

    def airborne(self) -> tuple[tuple[float, float], ...]:
        """Times for which the land detector said that the vehicle flew."""
        return px4.airborne(self)

    def _scan(self, damage: Damage) -> None:
        data, end = self.data, len(self.data)
        heads, place, previous = self._heads, 16, 0
        while place + 3 <= end:
            head = heads.get(data[place : place + 5])
            if head is not None:  # a sample: nearly all messages
                head[0].append(place)
                previous = place
                place += head[1]
                continue
            size, kind = struct.unpack_from("<HB", data, place)
            stop = place + 3 + size
            why = "the file ends within a message" if stop > end else self._message(kind, place + 3, stop, previous)
            if not why:
                place = stop
                continue
            offset = next((offset for offset in self._offsets if offset > previous), end)
            inside = offset if previous and offset < place else self._within(previous, place)
            if inside:  # the sample before was cut, and others were written over its end
                heads[data[previous : previous + 5]][0].pop()
                damage.add(previous, inside, why)
                previous, place = 0, inside
                continue
            following = min(self._resume(place + 1, end), offset if offset > place else end)
            damage.add(place, following, why)
            place = following
        for series in self.series.values():  # the last sample may be cut
            last = series.places[-1] if series.places else 0
            if series.places and last + heads[data[last : last + 5]][1] > end:
                series.places.pop()
                damage.add(last, end, "the file ends within a sample")

    def _resume(self, place: int, stop: int) -> int:
        """Where reading can go on: the header of a sample or of a sync message; without topics, a definition."""
        if not self._heads:
            match = DEFINITION.search(self.data, place)
            return match.start() if match else stop
        for match in LETTER.finditer(self.data, place + 2):
            start = match.start() - 2
            if start >= stop:
                break
            if self.data[start : start + 5] in self._heads or self.data[start : start + 11] == SYNC_RECORD:
                return start
        return stop

    def _within(self, previous: int, place: int) -> int:
        """Place of a message inside the sample that ends at ``place``, from which reading can go on; 0 without one."""
        head = self._heads.get(self.data[previous : previous + 5])
        if head is None or previous + head[1] != place:
            return 0
        start = self._resume(previous + 1, place)
        inner = self._heads.get(self.data[start : start + 5])
        return start if start < place and inner is not None and self._plausible(start + inner[1]) else 0

    def _plausible(self, place: int) -> bool:
        if place + 3 >= len(self.data):
            return place == len(self.data)
        return self.data[place : place + 5] in self._heads or self.data[place + 2] in KINDS.replace(b"D", b"")

    def _message(self, kind: int, start: int, stop: int, previous: int) -> str:
        """Read a message that is no sample; returns what is wrong with it, or an empty string."""
        letter = chr(kind)
        body = self.data[start:stop]
        try:
            if letter in "FAIPLC":
                getattr(self, f"_read_{letter}")(body)
            elif letter == "B":
                self._flags(body)
            elif letter == "O":
                (milliseconds,) = struct.unpack("<H", body)
                self._lost.append(Dropout(self._stamp(previous), milliseconds / 1000))
            elif letter == "D":
                identity = int.from_bytes(body[:2], "little")
                series = self._identities.get(identity)
                if series is None:
                    return f"a sample of message id {identity}, which has no topic"
                return f"a sample of {series.name} with {len(body)} bytes"
            elif letter not in "MQRS" and not self._plausible(stop):
                return f"unknown message type {kind}"
            elif letter == "S" and body != SYNC:
                return "a wrong synchronisation message"
        except DataError:
            raise
        except (ValueError, struct.error, KeyError) as error:
            return f"a wrong message of type {letter} ({str(error)[:80]})"
        return ""

    def _flags(self, body: bytes) -> None:
        if len(body) < 40:
            raise ValueError("too short")
        incompatible = body[8:16]
        if incompatible[0] & ~1 or any(incompatible[1:]):
            raise DataError(
                f"{self.path}: this ULog needs features that the reader does not know (incompatible flags "
                f"{incompatible.hex()}); convert it with PX4's own tools"
            )
        if incompatible[0] & 1:
            # where data was appended after a crash of the autopilot, most likely behind a message that was cut
            offsets = struct.unpack_from("<3Q", body, 16)
            self._offsets = sorted(offset for offset in offsets if 16 < offset < len(self.data))

    def _stamp(self, place: int) -> float:
        """Time of the sample at a place."""
        if not place:
            return 0.0
        series = self._identities[int.from_bytes(self.data[place + 3 : place + 5], "little")]
        entry = series.fields[series.received or series.clock]
        size = int(entry.dtype[2:])
        ticks = int.from_bytes(self.data[place + entry.offset : place + entry.offset + size], "little")
        return (ticks - self._zero) * series.tick

    # ---- the kinds of messages ----

    def _read_F(self, body: bytes) -> None:
        name, _, rest = body.decode("ascii").partition(":")
        if not re.fullmatch(r"\w{1,100}", name):
            raise ValueError("the name of a format")
        fields = []
        for part in rest.split(";"):
            if not part:
                continue
            match = re.fullmatch(r"(\w{1,100})(?:\[(\d{1,5})\])? (\w{1,100})", part)
            if not match:
                raise ValueError(f"the field {part[:40]!r}")
            fields.append((match[1], -1 if match[2] is None else int(match[2]), match[3]))
        if self._formats.get(name) != fields:
            self._layouts.clear()  # formats may be part of each other
        self._formats[name] = fields

    def _read_A(self, body: bytes) -> None:
        instance, identity = struct.unpack_from("<BH", body)
        kind = body[3:].decode("ascii")
        if kind not in self._formats:
            raise ValueError(f"no format of {kind[:80]!r}")
        if kind not in self._layouts:  # many topics may have the same format
            self._layouts[kind] = self._laid_out(kind)
        layout = self._layouts[kind]
        name = kind if instance == 0 else f"{kind}.{instance}"
        series = self.series.get(name)
        if series is None or (series.fields is not layout.fields and series.fields != layout.fields):
            series = self.series[name] = Series(name, kind, layout.fields, layout.clock, layout.received)
        self._identities[identity] = series
        for size in layout.sizes:
            self._heads[struct.pack("<HBH", size + 2, ord("D"), identity)] = (series.places, size + 5)

    def _laid_out(self, kind: str) -> _Layout:
        fields: dict[str, Field] = {}
        width = self._layout(kind, "", 0, fields, 0)
        least = width
        while fields and (last := next(reversed(fields))).split(".")[-1].startswith("_padding"):
            least = fields.pop(last).offset  # padding at the end of a message is not written
        if "timestamp" not in fields or not 0 < width <= 65_533 or fields["timestamp"].dtype[1] != "u":
            raise ValueError(f"the format of {kind[:80]!r}")
        named = {key: entry for key, entry in fields.items() if "_padding" not in key}
        shifted = {key: entry._replace(offset=entry.offset + 5) for key, entry in named.items()}
        sampled = "timestamp_sample" in fields and fields["timestamp_sample"].dtype == "<u8"
        clock, received = ("timestamp_sample", "timestamp") if sampled else ("timestamp", None)
        return _Layout(shifted, clock, received, {least, width})

    def _layout(self, kind: str, prefix: str, offset: int, fields: dict[str, Field], depth: int) -> int:
        """Add the numbers of a format to ``fields``; returns the offset behind them."""
        if depth > 8:
            raise ValueError(f"formats nested without end in {kind[:80]!r}")
        for name, count, label in self._formats[kind]:
            if count > FIELD_LIMIT:
                raise ValueError(f"{kind[:80]!r} is longer than a message can be")
            self.work.count("fields of definitions", max(count, 1))
            for index in range(1 if count < 0 else count):
                full = f"{prefix}{label}" + ("" if count < 0 else f"[{index}]")
                if name in TYPES:
                    if full in fields:
                        raise ValueError(f"the field {full[:80]!r} twice")
                    fields[full] = Field(offset, TYPES[name])
                    offset += int(TYPES[name][2:])
                else:
                    behind = self._layout(name, full + ".", offset, fields, depth + 1)
                    if behind == offset:
                        raise ValueError(f"an empty format {name[:80]!r}")
                    offset = behind
                if len(fields) > FIELD_LIMIT or offset > 65_533:
                    raise ValueError(f"{kind[:80]!r} is longer than a message can be")
        return offset

    @staticmethod
    def _pair(body: bytes) -> tuple[str, float | str]:
        """Key and value of an information or a parameter."""
        length = body[0] if body else 0
        kind, _, key = body[1 : 1 + length].decode("ascii").partition(" ")
        value = body[1 + length :]
        if not key or len(body) < 1 + length:
            raise ValueError("a key")
        if kind.startswith("char["):
            return key, value.decode("utf-8", "replace")
        codes = {"int32_t": "<i", "uint32_t": "<I", "float": "<f", "uint64_t": "<Q", "int64_t": "<q", "double": "<d"}
        if kind in codes:
            return key, struct.unpack(codes[kind], value)[0]
        return key, value.hex()[:200]

    def _read_I(self, body: bytes) -> None:
        key, value = self._pair(body)
        self.information[key] = value

    def _read_P(self, body: bytes) -> None:
        key, value = self._pair(body)
        self._settings[key] = value

    def _read_L(self, body: bytes, behind: int = 1) -> None:
        (stamp,) = struct.unpack_from("<Q", body, behind)
        if len(self._texts) < TEXT_LIMIT:
            text = body[behind + 8 :].decode("utf-8", "replace")
            self._texts.append(Message((stamp - self._zero) * 1e-6, LEVELS[body[0] & 7], text))

    def _read_C(self, body: bytes) -> None:
        self._read_L(body, 3)
