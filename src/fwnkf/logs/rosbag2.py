"""Bags of ROS 2: a folder of SQLite or MCAP files, or one SQLite file, without ROS installed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import DataError
from .definitions import known, parse, parse_idl
from .log import Topic
from .mcap import Mcap
from .ros import RAW_LIMIT, Batch, Channel, MessageLog, channel_of

ROWS = 4096
"""Rows of a database that are fetched at a time."""


class Sqlite(MessageLog):
    """One SQLite file of a bag of ROS 2."""

    format = "ROS 2 bag (SQLite)"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.parameters = {}
        self._names: dict[int, str] = {}
        channels: dict[str, Channel] = {}
        counts: dict[str, int] = {}
        with closing(self._connect()) as connection:
            texts = self._definitions(connection)
            for number, name, kind, encoding in self._rows(
                connection, "SELECT id, name, type, serialization_format FROM topics ORDER BY id"
            ):
                name, kind = str(name), str(kind)
                if not isinstance(number, int):  # a damaged database has values of any type
                    self._note(f"a topic without a number was left out: {name[:80]}")
                    continue
                self._names[number] = name
                channels[name] = self._channel(name, kind, str(encoding), texts.get(kind))
            for number, count in self._rows(connection, "SELECT topic_id, COUNT(*) FROM messages GROUP BY topic_id"):
                if number in self._names:
                    counts[self._names[number]] = int(count)
            ends = next(self._rows(connection, "SELECT MIN(timestamp), MAX(timestamp) FROM messages"), (0, 0))
        self.start_ns, self.stop_ns = (end if isinstance(end, int) else 0 for end in ends)
        self._describe(channels, counts)

    def _connect(self) -> sqlite3.Connection:
        if not self.path.is_file():
            raise DataError(f"{self.path} does not exist, or is not a file")
        try:
            # immutable: neither a journal nor a lock is written beside a log
            uri = f"{self.path.resolve().as_uri()}?mode=ro&immutable=1"
            connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            return connection
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> DataError:
        return DataError(f"{self.path} cannot be read as a bag of ROS 2 ({error}); record it again, or copy it anew")

    def _rows(self, connection: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from connection.execute(query)
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise self._failure(error) from error

    def _definitions(self, connection: sqlite3.Connection) -> dict[str, tuple[str, str]]:
        """Language and text of the definitions of message types; bags before ROS 2 Iron have none."""
        tables = {row[0] for row in self._rows(connection, "SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "message_definitions" not in tables:
            return {}
        query = "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
        return {str(kind): (str(language), str(text)) for kind, language, text in self._rows(connection, query)}

    def _channel(self, name: str, kind: str, encoding: str, definition: tuple[str, str] | None) -> Channel:
        if encoding != "cdr":
            return Channel(kind, None, encoding, f"messages in the encoding {encoding[:40]!r} are not read (cdr is)")
        where = f"{self.path}, topic {name}"
        try:
            if definition is not None and definition[1]:
                language, text = definition
                return channel_of(kind, "cdr", (parse_idl if "idl" in language else parse)(kind, text, where))
            return channel_of(kind, "cdr", known(kind, version=2))
        except DataError as error:
            return Channel(kind, None, "cdr", str(error))

    def _first(self, topics: set[str]) -> dict[str, bytes]:
        first = {}
        with closing(self._connect()) as connection:
            for number, name in self._names.items():
                query = f"SELECT data FROM messages WHERE topic_id = {number} ORDER BY id LIMIT 1"
                data = next(self._rows(connection, query), (None,))[0] if name in topics else None
                if isinstance(data, bytes):
                    first[name] = data
        return first

    def _batches(
        self, topics: Collection[str], start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[Batch]:
        wanted = {number: name for number, name in self._names.items() if name in topics}
        if not wanted:
            return
        conditions = [f"topic_id IN ({', '.join(map(str, wanted))})"]
        conditions += [] if start_ns is None else [f"timestamp >= {start_ns}"]
        conditions += [] if stop_ns is None else [f"timestamp < {stop_ns}"]
        query = f"SELECT topic_id, timestamp, data FROM messages WHERE {' AND '.join(conditions)} ORDER BY id"
        with closing(self._connect()) as connection:
            batch: dict[str, tuple[list[int], list[bytes]]] = {}
            held = rows = 0
            try:
                for number, stamp, data in connection.execute(query):
                    if not isinstance(stamp, int) or not isinstance(data, bytes) or stamp < 0:
                        self._note(f"{wanted[number]}: a row without time stamp or data was left out")
                        continue
                    stamps, messages = batch.setdefault(wanted[number], ([], []))
                    stamps.append(stamp)
                    messages.append(data)
                    held, rows = held + len(data), rows + 1
                    if rows >= ROWS or held >= RAW_LIMIT // 4:
                        yield batch
                        batch, held, rows = {}, 0, 0
            except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
                self._note(f"the database is damaged: {error}; read up to the damage")
            if batch:
                yield batch


class Bag2(MessageLog):
    """A bag of ROS 2: one or more files."""

    format = "ROS 2 bag"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.parameters = {}
        files = sorted(_files(self.path), key=_order)
        self._parts: list[MessageLog] = [
            Mcap(file) if file.suffix.lower() == ".mcap" else Sqlite(file) for file in files
        ]
        self.start_ns = min((part.start_ns for part in self._parts if part.start_ns), default=0)
        self.stop_ns = max(part.stop_ns for part in self._parts)
        self._channels = {}
        topics: dict[str, Topic] = {}
        for part in self._parts:
            for name, topic in part.topics.items():
                count = topics[name].count or 0 if name in topics else 0
                if count == 0:  # a topic without messages has no fields
                    self._channels[name], topics[name] = part._channels[name], topic
                topics[name] = replace(topics[name], count=count + (topic.count or 0))
        self.topics = topics
        self._collect_notes()

    def _collect_notes(self) -> None:
        for part in self._parts:
            for note in part.notes:
                self._note(note if len(self._parts) == 1 else f"{part.path.name}: {note}")

    def _batches(
        self, topics: Collection[str], start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[Batch]:
        for part in self._parts:
            yield from part._batches([name for name in topics if name in part._channels], start_ns, stop_ns)
        self._collect_notes()


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    try:
        entries = [entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    files = [entry for entry in entries if entry.suffix.lower() in (".db3", ".mcap")]
    if files:
        return files
    packed = [entry.name for entry in entries if entry.name.lower().endswith((".db3.zstd", ".mcap.zstd"))]
    if packed:
        raise DataError(f"{path}: the files of the bag are compressed; unpack them first: zstd -d {packed[0]} …")
    raise DataError(f"{path} is a folder without .db3 or .mcap files; give a log file or the folder of a ROS 2 bag")


def _order(path: Path) -> tuple[int, str]:
    """Files of a split bag are numbered: ``run_2.mcap`` comes before ``run_10.mcap``."""
    match = re.search(r"_(\d{1,9})$", path.stem)
    return (int(match[1]) if match else -1, path.name)
