"""Frames of Betaflight's blackbox: variable-length numbers, and predictions that have to be added to them.

A session is a run of I frames, which stand alone, and of P frames, which hold differences to the two frames before.
Bytes are decoded frame by frame; predictions are added afterwards, for the same position behind all I frames at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .records import Damage

SIGNED, UNSIGNED, NEGATIVE_14, TAG8_8, TAG2_3, TAG8_4, NOTHING, TAG2_3_VARIABLE = 0, 1, 3, 6, 7, 8, 9, 10
WIDTH = {TAG2_3: 3, TAG8_4: 4, TAG2_3_VARIABLE: 3}
PREVIOUS, STRAIGHT, MEAN, MOTOR, COUNT = 1, 2, 3, 5, 6
FRAME_LIMIT = 256
"""Bytes of a frame."""
FIELD_LIMIT = 200
RUN = 4096
"""P frames behind an I frame, at most; an I frame that was lost is no reason to stop."""
CELLS = 16
"""Numbers that a byte of the file can hold; eight zeros take one."""
TIME_JUMP = 10_000_000
"""Microseconds between frames."""
COUNT_JUMP = 5_000
END = b"End of log\0"
TURN = 1 << 32
KINDS = b"IPSGHE"

Group = tuple[int, int]


class Layout(NamedTuple):
    """Fields of a kind of frame."""

    names: list[str]
    predictors: list[int]
    groups: list[Group]
    """Encodings and the number of fields that are encoded together."""


@dataclass
class Session:
    """What the header of a session says about its frames."""

    layouts: dict[int, Layout]
    constants: dict[int, int]
    """What some predictors add."""
    whole: int = 32
    """I interval."""
    part: tuple[int, int] = (1, 1)
    """P interval: so many frames of so many iterations."""

    def skipped(self, count: int) -> int:
        """Iterations that are not logged behind one."""
        place = (count + 1) % self.whole  # behind an I frame
        number, of = self.part
        rest = (place + number - 1) % of
        left = 0 if rest < number else min(of - rest, self.whole - place)
        return left if left < COUNT_JUMP else 0


def group_fields(encodings: Sequence[int]) -> list[Group]:
    """Fields that share a tag byte.

    >>> group_fields([9, 0, 0, 7, 7, 7, 6, 6])
    [(9, 1), (0, 2), (7, 3), (6, 2)]
    """
    groups: list[Group] = []
    place = 0
    while place < len(encodings):
        code = encodings[place]
        most = WIDTH.get(code, 8 if code == TAG8_8 else len(encodings))
        count = 1
        while code not in WIDTH and count < most and encodings[place + count : place + count + 1] == [code]:
            count += 1
        count = min(WIDTH.get(code, count), len(encodings) - place)
        groups.append((code, count))
        place += count
    return groups


def read_unsigned(data: bytes, place: int) -> tuple[int, int]:
    """A number of at most five bytes of seven bits, and the place behind it."""
    value = shift = 0
    while shift < 35:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    return 0, place


def extend(value: int, bits: int) -> int:
    """A number of so many bits with its sign.

    >>> extend(0b1111, 4), extend(0b0111, 4)
    (-1, 7)
    """
    sign = 1 << (bits - 1)
    return (value ^ sign) - sign


def read_frame(data: bytes, place: int, groups: list[Group], row: list[int]) -> int:
    """Append the numbers of a frame to ``row``; returns the place behind it. IndexError where the data ends."""
    for code, count in groups:
        if code <= UNSIGNED:
            for _ in range(count):
                byte = data[place]
                place += 1
                if byte >= 128:
                    byte, place = read_unsigned(data, place - 1)
                row.append(byte if code else (byte >> 1) ^ -(byte & 1))
        elif code == TAG8_8:
            tag = 255 if count == 1 else data[place]
            place += count > 1
            for _ in range(count):
                if tag & 1:
                    byte, place = read_unsigned(data, place)
                    row.append((byte >> 1) ^ -(byte & 1))
                else:
                    row.append(0)
                tag >>= 1
        elif code == NOTHING:
            row.extend([0] * count)
        elif code == NEGATIVE_14:
            for _ in range(count):
                value, place = read_unsigned(data, place)
                row.append(-extend(value & 0x3FFF, 14))
        else:
            values, place = READERS[code](data, place)
            row.extend(values[:count])
    return place


def _three(data: bytes, place: int) -> tuple[list[int], int]:
    """Three numbers of 2, 4 or 6 bits each, or of whole bytes."""
    tag = data[place]
    size = tag >> 6
    if size == 0:
        return [extend(tag >> 4 & 3, 2), extend(tag >> 2 & 3, 2), extend(tag & 3, 2)], place + 1
    if size == 1:
        second = data[place + 1]
        return [extend(tag & 15, 4), extend(second >> 4, 4), extend(second & 15, 4)], place + 2
    if size == 2:
        return [extend(data[place + i] & 63, 6) for i in range(3)], place + 3
    return _bytes(data, place)


def _bytes(data: bytes, place: int) -> tuple[list[int], int]:
    """Three numbers of one to four bytes each, by two bits of the tag."""
    tag = data[place]
    place += 1
    values = []
    for _ in range(3):
        count = (tag & 3) + 1
        if place + count > len(data):
            raise IndexError(place)
        values.append(int.from_bytes(data[place : place + count], "little", signed=True))
        place += count
        tag >>= 2
    return values, place


def _three_variable(data: bytes, place: int) -> tuple[list[int], int]:
    """Three numbers of 2, 2, 2 bits, of 5, 5, 4, of 8, 7, 7, or of whole bytes."""
    tag = data[place]
    size = tag >> 6
    if size == 0:
        return _three(data, place)
    if size == 3:
        return _bytes(data, place)
    count, widths = (2, (5, 5, 4)) if size == 1 else (3, (8, 7, 7))
    if place + count > len(data):
        raise IndexError(place)
    bits = int.from_bytes(data[place : place + count], "big")
    first, second, third = widths
    values = [bits >> (second + third) & (1 << first) - 1, bits >> third & (1 << second) - 1, bits & (1 << third) - 1]
    return [extend(value, width) for value, width in zip(values, widths, strict=True)], place + count


def _four(data: bytes, place: int) -> tuple[list[int], int]:
    """Four numbers of 0, 4, 8 or 16 bits, packed to nibbles."""
    tag = data[place]
    place += 1
    values, half, kept = [], False, 0
    for _ in range(4):
        size = (0, 4, 8, 16)[tag & 3]
        tag >>= 2
        need = size - 4 if half else size
        count = (need + 7) // 8
        if place + count > len(data):
            raise IndexError(place)
        bits = (kept if half else 0) << 8 * count | int.from_bytes(data[place : place + count], "big")
        place += count
        rest = 8 * count - need
        values.append(extend(bits >> rest, size) if size else 0)
        if size:
            half, kept = rest == 4, bits & 15
    return values, place


READERS: dict[int, Callable[[bytes, int], tuple[list[int], int]]] = {
    TAG2_3: _three, TAG8_4: _four, TAG2_3_VARIABLE: _three_variable,
}  # fmt: skip


def predict(code: int, value: int, last: int, before: int, skipped: int) -> int:
    """A number of a P frame from its difference; those of the time and of the count are needed at once."""
    if code == PREVIOUS:
        return value + last
    if code == STRAIGHT:
        return value + 2 * last - before
    if code == MEAN:
        return value + int((last + before) / 2)
    return last + 1 + skipped if code == COUNT else value


def decode(data: bytes, place: int, base: int, session: Session, damage: Damage) -> NDArray[np.int64]:
    """Numbers of all I and P frames, ``[frames, fields]``; ``base`` is the place of the data in its file."""
    intra, inter = session.layouts[ord("I")], session.layouts[ord("P")]
    width = len(intra.names)
    clock, counter = intra.names.index("time"), intra.names.index("loopIteration")
    cells, starts = array("i"), array("q")
    limit = CELLS * len(data) + 4096
    longest = min(4 * session.whole, RUN)
    last = before = (0, 0)
    valid, known, candidate = False, False, (0, 0)
    frames, end = 0, len(data)
    while place < end:
        kind, begin = data[place], place
        row: list[int] = []
        why = ""
        try:
            if kind == ord("E"):
                place, known = _event(data, place + 1, known)
                if place >= end:
                    break
            elif kind in session.layouts:
                place = read_frame(data, place + 1, session.layouts[kind].groups, row)
            else:
                why = f"no frame of a known type ({kind})"
        except IndexError:
            why = "the data ends within a frame"
        if not why and (place - begin > FRAME_LIMIT or (place < end and data[place] not in KINDS)):
            why = "no frame follows a frame"
        if not why and kind == ord("I"):
            stamp = (row[counter], row[clock])
            if not known or follows(stamp, last) or follows(stamp, candidate):
                starts.append(frames)
                before = last = stamp
                valid = known = True
            else:
                candidate, valid, why = stamp, False, "the time jumps"
        elif not why and kind == ord("P"):
            if valid and frames - starts[-1] >= longest:
                valid, why = False, f"no I frame for {longest} frames"
            if not valid and not why:
                continue  # nothing to add the differences to
        if not why and kind == ord("P"):
            skipped = session.skipped(last[0])
            pairs = zip((counter, clock), last, before, strict=True)
            stamp_ = [predict(inter.predictors[i], row[i], a, b, skipped) for i, a, b in pairs]
            stamp = (stamp_[0], stamp_[1])
            if follows(stamp, last):
                before, last = last, stamp
            else:
                valid, why = False, "the time jumps"
        if why:
            valid = False
            place = _resume(data, begin + 1)
            damage.add(base + begin, base + place, why)
        elif kind in b"IP":
            try:
                cells.extend(row)
            except OverflowError:  # 32 bits without a sign
                del cells[frames * width :]
                cells.extend([(value + (1 << 31)) % TURN - (1 << 31) for value in row])
            frames += 1
            if len(cells) > limit:
                raise DataError(f"the session at byte {base:,} has more numbers than its bytes can hold; it is damaged")
    raw = np.frombuffer(cells, np.int32).astype(np.int64).reshape(-1, width)
    return complete(raw, np.frombuffer(starts, np.int64), intra, inter, session)


def follows(stamp: tuple[int, int], last: tuple[int, int]) -> bool:
    """Whether count and time of a frame can be those behind another one; the time turns over at 32 bits."""
    return 0 <= stamp[0] - last[0] <= COUNT_JUMP and (stamp[1] - last[1]) % TURN <= TIME_JUMP


def _resume(data: bytes, place: int) -> int:
    """The next byte that can begin an I frame."""
    following = data.find(b"I", place)
    return following if following >= 0 else len(data)


def _event(data: bytes, place: int, known: bool) -> tuple[int, bool]:
    """Skip an event; after a pause of the recorder the time may jump."""
    kind = data[place]
    place += 1
    if kind == 255:
        if data[place : place + len(END)] != END:
            raise IndexError(place)
        return len(data), known
    numbers = {0: 1, 14: 2, 15: 1, 30: 2}.get(kind, 0)
    for _ in range(numbers):
        _, place = read_unsigned(data, place)
    if kind == 13:
        place = place + 5 if data[place] >= 128 else read_unsigned(data, place + 1)[1]
    place += {20: 4, 40: 5, 10: 5, 11: 6, 12: 9}.get(kind, 0)
    return place, known and kind != 14


def complete(
    raw: NDArray[np.int64], starts: NDArray[np.int64], intra: Layout, inter: Layout, session: Session
) -> NDArray[np.int64]:
    """Add the predictions: frame ``j`` behind every I frame from the two before it."""
    values = raw.copy()
    if len(starts) == 0:
        return values
    motor = intra.names.index("motor[0]") if "motor[0]" in intra.names else None
    _add_constants(values, starts, intra, session, motor)
    lengths = np.diff(np.append(starts, len(raw)))
    columns = {code: np.flatnonzero(np.array(inter.predictors) == code) for code in set(inter.predictors)}
    for position in range(1, int(lengths.max())):
        rows = starts[lengths > position] + position
        last, before = values[rows - 1], values[rows - min(position, 2)]
        row = values[rows]
        for code, chosen in columns.items():
            if code == PREVIOUS:
                row[:, chosen] += last[:, chosen]
            elif code == STRAIGHT:
                row[:, chosen] += 2 * last[:, chosen] - before[:, chosen]
            elif code == MEAN:
                total = last[:, chosen] + before[:, chosen]
                row[:, chosen] += (total + (total < 0)) >> 1  # rounds towards zero
            elif code == COUNT:
                skipped = np.array([[session.skipped(int(count))] for count in last[:, chosen[0]]])
                row[:, chosen] = last[:, chosen] + 1 + skipped
        values[rows] = row
        _add_constants(values, rows, inter, session, motor)
    return values


def _add_constants(
    values: NDArray[np.int64], rows: NDArray[np.int64], layout: Layout, session: Session, motor: int | None
) -> None:
    for column, code in enumerate(layout.predictors):
        if code in session.constants:
            values[rows, column] += session.constants[code]
        elif code == MOTOR and motor is not None:
            values[rows, column] += values[rows, motor]
