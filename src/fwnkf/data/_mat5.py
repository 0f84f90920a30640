"""MAT files of level 5, the numeric and text arrays of them, bounded in everything.

``scipy.io.loadmat`` reads far more, but trusts sizes a file claims and lets compressed parts grow without bound. The
few element types a recording needs take a page, want no further dependency, and cannot be made to misbehave.
The format: MathWorks, "MAT-File Format", chapter 1.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ._files import read_bytes

FILE_LIMIT = 1 << 28
UNPACKED_LIMIT = 1 << 29
VARIABLE_LIMIT = 256
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_TEXT = {16: "utf-8", 17: "utf-16", 18: "utf-32", 2: "latin-1", 1: "latin-1", 4: "utf-16"}
_CHAR, _MATRIX, _COMPRESSED = 4, 14, 15


def read_mat(data: bytes, path: Path) -> dict[str, NDArray[Any] | str]:
    """Arrays and texts by name; cells, structs, objects and sparse matrices are passed over."""
    if len(data) < 128:
        raise DataError(f"{path}: {len(data)} bytes are too few for a MAT file; it is cut short")
    if data[:4] == b"\x89HDF" or b"MATLAB 7.3" in data[:128]:
        raise DataError(f"{path} is a MAT file of version 7.3 (HDF5); save it with '-v7', or take the official one")
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None or data[125 if order == "<" else 124] != 1:
        raise DataError(f"{path} is no MAT file of level 5")
    found: dict[str, NDArray[Any] | str] = {}
    at, room = 128, UNPACKED_LIMIT
    for _ in range(VARIABLE_LIMIT):
        if at >= len(data):
            return found
        kind, body, at = _element(data, at, order, path, padded=False)
        if kind == _COMPRESSED:
            body = _unpack(body, room, path, at)
            room -= len(body)
            kind, body, _ = _element(body, 0, order, path)
        if kind != _MATRIX:
            raise DataError(f"{path}, byte {at}: an element of type {kind} where a variable should be; it is damaged")
        name, value = _matrix(body, order, path)
        if value is not None:
            if name in found:
                raise DataError(f"{path} holds variable {name!r} twice")
            found[name] = value
    raise DataError(f"{path} holds more than {VARIABLE_LIMIT} variables; that is no recording")


def load_mat(path: Path) -> tuple[dict[str, NDArray[Any] | str], bytes]:
    """The variables of a file, and its bytes."""
    data = read_bytes(path, FILE_LIMIT)
    return read_mat(data, path), data


def _unpack(body: bytes, room: int, path: Path, at: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(body, room)
    except zlib.error as error:
        raise DataError(f"{path}, before byte {at}: a compressed variable is damaged ({error})") from error
    if not stream.eof:
        raise DataError(
            f"{path}, before byte {at}: a compressed variable is cut short, or unpacks to more than "
            f"{UNPACKED_LIMIT:,} bytes"
        )
    return unpacked


def _element(data: bytes, at: int, order: str, path: Path, padded: bool = True) -> tuple[int, bytes, int]:
    """Type and content of the element that starts at a byte, and where the next one starts."""
    if at + 8 > len(data):
        raise DataError(f"{path}: the file ends within a tag; it is cut short")
    first, size = (int(word) for word in np.frombuffer(data, f"{order}u4", 2, at))
    if first >> 16:  # a small element: size, type and up to four bytes of content in the tag itself
        kind, size = first & 0xFFFF, first >> 16
        if size > 4:
            raise DataError(f"{path}: a small element of {size} bytes; the file is damaged")
        return kind, data[at + 4 : at + 4 + size], at + 8
    end = at + 8 + size
    if end > len(data):
        raise DataError(f"{path}: an element claims {size:,} bytes, more than there are; the file is cut short")
    following = end if first == _COMPRESSED and not padded else end + (-size) % 8
    return first, data[at + 8 : end], following


def _matrix(body: bytes, order: str, path: Path) -> tuple[str, NDArray[Any] | str | None]:
    kind, flags, at = _element(body, 0, order, path)
    if kind != 6 or len(flags) < 8:
        raise DataError(f"{path}: a variable has no flags; the file is damaged")
    word = int(np.frombuffer(flags, f"{order}u4", 1)[0])
    array_class, complex_numbers = word & 0xFF, bool(word & 0x800)
    _, raw_shape, at = _element(body, at, order, path)
    if len(raw_shape) % 4 or not 8 <= len(raw_shape) <= 32:
        raise DataError(f"{path}: a variable has no proper shape; the file is damaged")
    shape = tuple(int(size) for size in np.frombuffer(raw_shape, f"{order}i4"))
    _, raw_name, at = _element(body, at, order, path)
    name = raw_name.decode("latin-1")
    if complex_numbers or (array_class != _CHAR and array_class not in _CLASSES):
        return name, None
    kind, content, at = _element(body, at, order, path)
    if array_class == _CHAR:
        return name, _text(kind, content, order)
    stored = np.dtype(order + _TYPES[kind]) if kind in _TYPES else None
    if stored is None or min(shape) < 0 or math.prod(shape) * stored.itemsize != len(content):
        raise DataError(
            f"{path}: variable {name[:40]!r} claims shape {shape}, but holds {len(content):,} bytes of type {kind}; "
            "the file is damaged"
        )
    values = np.frombuffer(content, stored).reshape(shape, order="F")
    return name, values.astype(_CLASSES[array_class])


def _text(kind: int, content: bytes, order: str) -> str:
    coding = _TEXT.get(kind, "latin-1")
    if coding in ("utf-16", "utf-32"):
        coding += "-le" if order == "<" else "-be"
    return content.decode(coding, "replace")
