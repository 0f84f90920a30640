"""Small log files that describe much work: ``python -m tests.hardening.crafted_logs NAME`` reads one of them.

The file is written into the current folder, and read by a process whose memory nothing else raised. Prints a JSON
object: bytes of the file, outcome, processor seconds, and megabytes that reading took.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fwnkf.errors import FwnkfError
from tests.logs.mutated import expire, read

LIMIT = 60
"""Seconds of processor time after which a read is stopped."""

# ---- MCAP ------------------------------------------------------------------------------------------------------------

MAGIC = b"\x89MCAP0\r\n"


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode()


def record(opcode: int, body: bytes) -> bytes:
    return struct.pack("<BQ", opcode, len(body)) + body


def schema(number: int, name: str, definition: str, language: str = "ros1msg") -> bytes:
    return record(3, struct.pack("<H", number) + text(name) + text(language) + text(definition))


def channel(number: int, of_schema: int, topic: str, encoding: str = "ros1") -> bytes:
    return record(4, struct.pack("<HH", number, of_schema) + text(topic) + text(encoding) + text(""))


def message(of_channel: int, stamp: int, data: bytes) -> bytes:
    return record(5, struct.pack("<HIQQ", of_channel, 0, stamp, stamp) + data)


def chunk(content: bytes) -> bytes:
    """Compressed, without a checksum."""
    packed = pytest.importorskip("zstandard").ZstdCompressor(level=3).compress(content)
    head = struct.pack("<QQQI", 0, 1, len(content), 0) + text("zstd") + struct.pack("<Q", len(packed))
    return record(6, head + packed)


def mcap(*parts: bytes) -> bytes:
    end = record(15, struct.pack("<I", 0)) + record(2, struct.pack("<QQI", 0, 0, 0)) + MAGIC
    return MAGIC + record(1, text("") + text("x")) + b"".join(parts) + end


NUMBER = schema(1, "a/A", "float64 x") + channel(1, 1, "/a")


def mcap_messages(path: Path) -> None:
    """48 million equal messages."""
    packed = chunk(NUMBER + message(1, 1, bytes(8)) * 6_000_000)
    path.write_bytes(mcap(*[packed] * 8))


def mcap_zeros(path: Path) -> None:
    """Eight gigabytes of zeros."""
    packed = chunk(bytes(1 << 28))
    path.write_bytes(mcap(NUMBER, *[packed] * 32))


def mcap_topics_in_chunks(path: Path) -> None:
    """Each topic in a chunk of its own, so that a search for their first messages meets all others."""
    chunks = [record(6, struct.pack("<QQQI", 0, 1, 39, 0) + text("") + struct.pack("<Q", 39) + message(i, i, bytes(8)))
              for i in range(1, 5000)]  # fmt: skip
    path.write_bytes(mcap(schema(1, "a/A", "float64 x"), *(channel(i, 1, f"/t{i}") for i in range(1, 5000)), *chunks))


def mcap_shared_schema(path: Path) -> None:
    """Thousands of channels whose definition has a megabyte."""
    long = schema(1, "a/A", "\n".join(f"float64 x{i}" for i in range(19_000)) + "#" * 700_000)
    path.write_bytes(mcap(long, *(channel(i, 1, f"/t{i}") for i in range(1, 6000)), message(1, 1, bytes(8))))


def mcap_empty_messages(path: Path) -> None:
    """Sequences of four billion messages without fields, each message of another length."""
    kind = schema(1, "a/A", "a/E[] e\nfloat64 x\n===\nMSG: a/E\n")
    parts = [message(1, 5 + i, struct.pack("<I", 0xFFFFFFFF) + bytes(i + 8)) for i in range(300)]
    path.write_bytes(mcap(kind, channel(1, 1, "/a"), *parts))


def mcap_layouts(path: Path) -> None:
    """Messages that differ in the lengths of their thousand strings."""
    lengths = [[3 if i % 1000 == j else 0 for j in range(1000)] for i in range(900)]
    parts = [
        message(1, i, struct.pack("<I", 1000) + b"".join(struct.pack("<I", n) + b"abc"[:n] for n in row) + bytes(8))
        for i, row in enumerate(lengths)
    ]
    path.write_bytes(mcap(schema(1, "a/A", "string[] s\nfloat64 x"), channel(1, 1, "/a"), *parts))


def mcap_json(path: Path) -> None:
    """Messages of 60 MB of empty lists."""
    packed = chunk(channel(1, 0, "/a", "json") + message(1, 1, b'{"x":[' + b"[]," * 20_000_000 + b"1]}"))
    path.write_bytes(mcap(packed, packed))


def mcap_digits(path: Path) -> None:
    """An array whose length has 5,000 digits."""
    kind = schema(1, "a/A", f"float64[{'9' * 5000}] x")
    path.write_bytes(mcap(kind, channel(1, 1, "/a"), message(1, 1, bytes(8))))


def mcap_strings(path: Path) -> None:
    """A message of 50 million empty strings."""
    kind = schema(1, "a/A", "string[] s\nfloat64 x") + channel(1, 1, "/a")
    path.write_bytes(mcap(chunk(kind + message(1, 1, struct.pack("<I", 50_000_000) + bytes(200_000_008)))))


def mcap_idl(path: Path) -> None:
    """Definitions with a string that is not closed."""
    kinds = [schema(i, f"a/A{i}", '@verbatim("' + "a" * 60_000, "ros2idl") for i in range(1, 60)]
    channels = [channel(i, i, f"/a{i}", "cdr") + message(i, 1, bytes(12)) for i in range(1, 60)]
    path.write_bytes(mcap(*(chunk(kind) for kind in kinds), *channels))


def mcap_damaged_chunks(path: Path) -> None:
    """An index of chunks that are not there."""
    count, place = 40_000, 8 + 18
    index = [record(8, struct.pack("<QQQQ", 0, 1, place + 9 * i, 9) + struct.pack("<I", 0)) for i in range(count)]
    statistics = record(11, struct.pack("<QHIIIIQQ", 1, 0, 0, 0, 0, count, 0, 1) + struct.pack("<I", 0))
    body = MAGIC + record(1, text("") + text("x")) + bytes(9 * count)
    declared = schema(1, "a/A", "float64 x") + channel(1, 1, "/a")
    footer = record(2, struct.pack("<QQI", len(body), 0, 0)) + MAGIC
    path.write_bytes(body + declared + b"".join(index) + statistics + footer)


# ---- SQLite ----------------------------------------------------------------------------------------------------------

TOPICS = """
CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
INSERT INTO topics VALUES(1, '/imu', 'a/msg/A', 'cdr');
CREATE TABLE message_definitions(topic_type TEXT, encoding TEXT, encoded_message_definition TEXT);
"""
MESSAGES = "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id, timestamp, data);"
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"


def database(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.commit()
    connection.close()


def define(definition: str) -> str:
    return f"{TOPICS}INSERT INTO message_definitions VALUES('a/msg/A', 'ros2msg', '{definition}');"


def sqlite_view(path: Path) -> None:
    """Messages without end."""
    select = "SELECT x AS id, 1 AS topic_id, x AS timestamp, x'00010000' AS data FROM c"
    database(path, f"{define('float64 x')}CREATE VIEW messages AS {ENDLESS} {select};")


def sqlite_view_of_blobs(path: Path) -> None:
    select = "SELECT x AS id, 1 AS topic_id, x AS timestamp, zeroblob(900000000) AS data FROM c LIMIT 40"
    database(path, f"{define('float64 x')}CREATE VIEW messages AS {ENDLESS} {select};")


def sqlite_view_of_topics(path: Path) -> None:
    select = "SELECT x AS id, '/t' || x AS name, 'a/msg/A' AS type, 'cdr' AS serialization_format FROM c"
    database(path, f"{MESSAGES}CREATE VIEW topics AS {ENDLESS} {select};")


def sqlite_view_as_table(path: Path) -> None:
    """A view that the schema calls a table with pages of its own."""
    sqlite_view(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET type = 'table', rootpage = 2 WHERE name = 'messages'")
    connection.commit()
    connection.close()


def sqlite_generated(path: Path) -> None:
    """Rows whose data is computed, 900 MB each."""
    columns = "id INTEGER PRIMARY KEY, topic_id, timestamp, data AS (zeroblob(900000000))"
    rows = ", ".join(f"({i}, 1, {i})" for i in range(1, 40))
    script = f"CREATE TABLE messages({columns});INSERT INTO messages(id, topic_id, timestamp) VALUES {rows};"
    database(path, define("float64 x") + script)


def sqlite_loop(path: Path) -> None:
    """A tree of pages in which every entry of a page refers to the same page below: 10^20 rows."""
    fill = "INSERT INTO messages VALUES(1, 1, 1, x'00010000');"
    database(path, f"PRAGMA page_size = 512;{define('float64 x')}{MESSAGES}{fill}")
    connection = sqlite3.connect(path)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages'").fetchone()
    connection.close()
    data = bytearray(path.read_bytes())
    leaf = bytes(data[(root - 1) * 512 : root * 512])
    count = len(data) // 512
    for level in range(12):  # pages count + 1 …: each refers to the next, the last to the leaf
        below = count + level + 1
        cells = 60
        body = bytearray(512)
        body[0] = 5
        struct.pack_into(">HHHBI", body, 1, 0, cells, 512 - 5 * cells, 0, below)
        for index in range(cells):
            place = 512 - 5 * (index + 1)
            struct.pack_into(">H", body, 12 + 2 * index, place)
            struct.pack_into(">IB", body, place, below, 1 + index)
        if level == 0:
            data[(root - 1) * 512 : root * 512] = body
        else:
            data += body
    data += leaf
    struct.pack_into(">I", data, 28, len(data) // 512)
    path.write_bytes(data)


def sqlite_digits(path: Path) -> None:
    row = "INSERT INTO messages VALUES(1, 1, 5, x'0001000000000000');"
    database(path, define(f"float64[{'9' * 5000}] x") + MESSAGES + row)


# ---- tables ----------------------------------------------------------------------------------------------------------


def parquet_table(path: Path, rows: int, columns: int) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    zeros = arrow.array([0.0]).take(arrow.array([0] * 1_000_000))
    table = arrow.table(dict.fromkeys(("t", *(f"c{i}" for i in range(columns))), zeros))
    with parquet.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(rows // len(zeros)):
            writer.write_table(table)


def parquet_rows(path: Path) -> None:
    parquet_table(path, 12_000_000, 3)


def parquet_columns(path: Path) -> None:
    parquet_table(path, 1_000_000, 60)


def csv_spaces(path: Path) -> None:
    """A header that a regular expression goes over again and again."""
    path.write_text(f"t [s],gyro_x [a{' ' * 100_000}b]\n0,1\n0.01,2\n")


def csv_spaces_often(path: Path) -> None:
    """As many such headers as a line can hold."""
    names = ",".join(f"gyro_x{i} [a{' ' * 900}b]" for i in range(1000))
    path.write_text(f"t [s],{names}\n{'0,' * 1000}0\n")


def csv_names(path: Path) -> None:
    """Long names that are almost those of signals."""
    names = ",".join(f"{'a_' * 450}gyro_{i}" for i in range(1000))
    path.write_text(f"t [s],{names}\n{'0,' * 1000}0\n")


# ---- records ---------------------------------------------------------------------------------------------------------


def fmt(kind: int, length: int, name: str, layout: str, columns: str) -> bytes:
    parts = (name.encode(), layout.encode(), columns.encode())
    return b"\xa3\x95\x80" + struct.pack("<BB4s16s64s", kind, length, *parts)


FMT = fmt(128, 89, "FMT", "BBnNZ", "Type,Length,Name,Format,Columns")


def dataflash_two_layouts(path: Path) -> None:
    """Two layouts of a message in turn, thousands of times."""
    both = fmt(1, 11, "AAA", "Q", "TimeUS") + b"\xa3\x95\x01" + bytes(8) + fmt(1, 7, "AAA", "f", "X")
    path.write_bytes(FMT + both * 8000)


def dataflash_layouts(path: Path) -> None:
    """Thousands of layouts of a message, and a sample of each."""
    sample = b"\xa3\x95\x01" + bytes(12)
    parts = [fmt(1, 15, "AAA", "QI", f"TimeUS,X{i}") + sample for i in range(8000)]
    path.write_bytes(FMT + b"".join(parts))


def dataflash_messages(path: Path) -> None:
    """Thousands of messages with three arrays each."""
    names = [a + b + c for a in "ABCDEFGHIJ" for b in map(chr, range(48, 58)) for c in map(chr, range(97, 123))]
    parts = [fmt(1, 203, name, "Qaaa", "TimeUS,X,Y,Z") + b"\xa3\x95\x01" + bytes(200) for name in names * 4]
    path.write_bytes(FMT + b"".join(parts))


def ulog_record(kind: str, body: bytes) -> bytes:
    return struct.pack("<HB", len(body), ord(kind)) + body


def ulog_subscriptions(path: Path) -> None:
    """Thousands of topics of a format with 20,000 numbers, which takes few bytes."""
    parts = [b"ULog\x01\x12\x35\x01", bytes(8), ulog_record("B", bytes(40))]
    parts.append(ulog_record("F", b"a:uint64_t timestamp;int8_t[19000] x;"))
    parts += [ulog_record("A", struct.pack("<BH", i % 256, i) + b"a") for i in range(60_000)]
    parts.append(ulog_record("D", bytes(2) + bytes(19_008)))
    path.write_bytes(b"".join(parts))


def ulog_formats(path: Path) -> None:
    """The same with a format of its own for each topic."""
    parts = [b"ULog\x01\x12\x35\x01", bytes(8), ulog_record("B", bytes(40))]
    for i in range(5000):
        parts.append(ulog_record("F", b"a%d:uint64_t timestamp;int8_t[19000] x;" % i))
        parts.append(ulog_record("A", struct.pack("<BH", 0, i) + b"a%d" % i))
    parts.append(ulog_record("D", bytes(2) + bytes(19_008)))
    path.write_bytes(b"".join(parts))


def ulog_damage(path: Path) -> None:
    """Damage behind each of thousands of topics."""
    sync = ulog_record("S", b"\x2f\x73\x13\x20\x25\x0c\xbb\x12")
    parts = [b"ULog\x01\x12\x35\x01", bytes(8), ulog_record("B", bytes(40))]
    parts.append(ulog_record("F", b"a:uint64_t timestamp;"))
    parts += [ulog_record("A", struct.pack("<BH", 0, i) + b"a") + b"\xff\xff\xff" + sync for i in range(20_000)]
    parts.append(ulog_record("D", bytes(10)))
    path.write_bytes(b"".join(parts))


CRAFTED: dict[str, tuple[str, Callable[[Path], None]]] = {
    function.__name__: (suffix, function)
    for suffix, functions in {
        ".mcap": (
            mcap_messages, mcap_zeros, mcap_topics_in_chunks, mcap_shared_schema, mcap_empty_messages, mcap_layouts,
            mcap_json, mcap_digits, mcap_strings, mcap_idl, mcap_damaged_chunks,
        ),
        ".db3": (
            sqlite_view, sqlite_view_of_blobs, sqlite_view_of_topics, sqlite_view_as_table, sqlite_generated,
            sqlite_loop, sqlite_digits,
        ),
        ".parquet": (parquet_rows, parquet_columns),
        ".csv": (csv_spaces, csv_spaces_often, csv_names),
        ".bin": (dataflash_two_layouts, dataflash_layouts, dataflash_messages),
        ".ulg": (ulog_subscriptions, ulog_formats, ulog_damage),
    }.items()
    for function in functions
}  # fmt: skip
"""Suffix and writer of each file."""


def measure(path: Path) -> dict[str, object]:
    """Read a file in this process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    signal.signal(signal.SIGPROF, expire)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        outcome, words = "read", read(path, topics=40)
    except FwnkfError as error:
        outcome, words = "named", str(error)
    except BaseException as error:
        outcome, words = type(error).__name__, str(error)
    signal.setitimer(signal.ITIMER_PROF, 0)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    seconds = time.process_time() - start
    row = {"outcome": outcome, "text": words[:300], "seconds": round(seconds, 2), "growth_mb": round(growth, 1)}
    return {"file": path.stem, "bytes": path.stat().st_size} | row


def main(name: str) -> None:
    suffix, write = CRAFTED[name]
    path = Path(name + suffix)
    if os.fork() == 0:  # writing takes memory too
        write(path)
        os._exit(0)
    _, status = os.wait()
    assert status == 0, f"{name} could not be written"
    print(json.dumps(measure(path)))


if __name__ == "__main__":
    main(sys.argv[1])
