"""Definitions of ROS messages, parsed from the text that a log carries with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ..errors import DataError
from ..extras import need

TEXT_LIMIT = 1 << 20
"""Longest definition in characters."""
LINE_LIMIT = 20_000
IDL_LIMIT = 1 << 16
"""Longest definition in IDL; the time that its parser takes grows with the square of a string that is not closed."""

NUMBERS: Mapping[str, str] = {
    "bool": "u1", "byte": "u1", "char": "u1", "octet": "u1", "uint8": "u1", "int8": "i1",
    "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4", "int64": "i8", "uint64": "u8",
    "float32": "f4", "float64": "f8",
}  # fmt: skip
"""Primitive types and their numpy types, without byte order."""

ARRAY_LIMIT = 1 << 32
"""Elements of an array of fixed length; the messages themselves count sequences with 32 bits."""

_FIELD = re.compile(r"(?P<type>[\w/]+)(?P<bound><=\d+)?(?P<array>\[(<=)?[0-9]*\])?\s+(?P<name>\w+)(?P<rest>.*)")
_SEPARATOR = re.compile(r"^={3,}\s*$", re.MULTILINE)


class Field(NamedTuple):
    """A field of a message: a primitive, a string or another message, or an array of them."""

    name: str
    kind: str
    length: int | None = None
    """None for one value, -1 for a sequence of any length, else that of an array."""


Definitions = Mapping[str, tuple[Field, ...]]
"""Fields of every message type by name, without ``/msg/``: ``sensor_msgs/Imu``."""


def short(kind: str) -> str:
    """The name of a type without ``/msg/``, which is the same in ROS 1 and ROS 2.

    >>> short("sensor_msgs/msg/Imu"), short("sensor_msgs/Imu")
    ('sensor_msgs/Imu', 'sensor_msgs/Imu')
    """
    parts = kind.split("/")
    return f"{parts[0]}/{parts[-1]}" if len(parts) == 3 else kind


def parse(kind: str, text: str, where: str) -> Definitions:
    """The definitions in a text in the ``.msg`` language: the type itself, then the types it is made of.

    >>> text = "Header header\\nfloat64[2] values  # in m\\nint8 FAST=1\\n===\\nMSG: std_msgs/Header\\nuint32 seq\\n"
    >>> parse("robot/Ranges", text, "/ranges")["robot/Ranges"]
    (Field(name='header', kind='std_msgs/Header', length=None), Field(name='values', kind='float64', length=2))
    """
    if len(text) > TEXT_LIMIT or text.count("\n") > LINE_LIMIT:
        raise DataError(f"{where}: the definition of {kind[:80]} is longer than {TEXT_LIMIT:,} characters")
    sections = {short(kind): _SEPARATOR.split(text)[0]}
    for section in _SEPARATOR.split(text)[1:]:
        head, _, body = section.lstrip().partition("\n")
        label, _, name = head.partition(":")
        if label.strip() != "MSG":
            raise DataError(f"{where}: the definition of {kind[:80]} has a section without 'MSG: type': {head[:80]!r}")
        sections.setdefault(short(name.strip()), body)
    return {name: _fields(name, body, sections, where) for name, body in sections.items()}


def parse_idl(kind: str, text: str, where: str) -> Definitions:
    """The definitions in a text in the OMG IDL language, as some ROS 2 packages have them."""
    if len(text) > TEXT_LIMIT:
        raise DataError(f"{where}: the definition of {kind[:80]} is longer than {TEXT_LIMIT:,} characters")
    types: dict[str, Any] = {}
    for section in _SEPARATOR.split(text):
        head, _, body = section.lstrip().partition("\n")
        if len(section) > IDL_LIMIT:
            raise DataError(f"{where}: the definition of {kind[:80]} is longer than {IDL_LIMIT:,} characters")
        try:
            types |= need("rosbags.typesys", "logs").get_types_from_idl(body if head.startswith("IDL:") else section)
        except Exception as error:  # the parser of rosbags raises its own and those of Python
            raise DataError(f"{where}: the definition of {kind[:80]} cannot be parsed: {str(error)[:160]}") from error
    return {short(name): _converted(fields) for name, (_, fields) in types.items()}


def known(kind: str, *, version: int) -> Definitions | None:
    """The definitions of a standard type, for logs without definitions; None if it is not a standard type."""
    store = _standard_types(version)
    definitions: dict[str, tuple[Field, ...]] = {}
    pending = [kind]
    while pending:
        name = pending.pop()
        if name not in store.fielddefs:
            return None
        definitions[short(name)] = fields = _converted(store.fielddefs[name][1])
        long = {f"{f.kind.split('/')[0]}/msg/{f.kind.split('/')[1]}" for f in fields if "/" in f.kind}
        pending += [other for other in long if short(other) not in definitions]
    return definitions


@lru_cache
def _standard_types(version: int) -> Any:
    typesys = need("rosbags.typesys", "logs")
    return typesys.get_typestore(typesys.Stores.ROS1_NOETIC if version == 1 else typesys.Stores.ROS2_HUMBLE)


def _fields(package: str, body: str, sections: Mapping[str, str], where: str) -> tuple[Field, ...]:
    fields = []
    for line in body.splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _FIELD.match(text)
        if match is None:
            raise DataError(f"{where}: the definition of {package[:80]} has a line that is no field: {text[:80]!r}")
        if match["rest"].lstrip().startswith("="):
            continue  # a constant
        array = match["array"]
        length = None if array is None else -1 if array == "[]" or "<" in array else _length(array[1:-1])
        if length is not None and length > ARRAY_LIMIT:
            raise DataError(
                f"{where}: the definition of {package[:80]} has an array of more than {ARRAY_LIMIT:,} elements, the "
                f"length of {match['name'][:80]}; correct the definition, or record the topic again"
            )
        fields.append(Field(match["name"], _resolve(match["type"], package, sections), length))
    return tuple(fields)


def _length(digits: str) -> int:
    """The number of some digits; Python refuses to convert thousands of them."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= len(str(ARRAY_LIMIT)) else ARRAY_LIMIT + 1


def _resolve(kind: str, package: str, sections: Mapping[str, str]) -> str:
    """The full name of a type that is written without its package."""
    if kind in NUMBERS or kind in ("string", "wstring", "time", "duration"):
        return kind
    if "/" in kind:
        return short(kind)
    beside = f"{package.split('/')[0]}/{kind}"
    if kind == "Header" and beside not in sections:
        return "std_msgs/Header"
    return beside


def _converted(fields: Any) -> tuple[Field, ...]:
    """Fields as rosbags describes them."""
    converted = []
    for name, (node, detail) in fields:
        length = None
        if node in (3, 4):
            length = int(detail[1]) if node == 3 else -1
            node, detail = detail[0]
        converted.append(Field(name, str(detail[0]) if node == 1 else short(str(detail)), length))
    return tuple(converted)
