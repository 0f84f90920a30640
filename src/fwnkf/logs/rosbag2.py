"""Bags of ROS 2: a folder of SQLite or MCAP files, or one SQLite file, without ROS installed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import DataError
from .definitions import known
from .log import LOG_READERS, Topic
from .mcap import Mcap
from .ros import RAW_LIMIT, Batch, Channel, MessageLog, channel_of
from .work import Work

ROWS = 4096
"""Rows of a database that are fetched at a time."""
STEPS = 1000
"""Steps of the database between two looks at the limit."""
COLUMNS = {
    "topics": ("id", "name", "type", "serialization_format"),
    "messages": ("topic_id", "timestamp", "data"),
    "message_definitions": ("topic_type", "encoding", "encoded_message_definition"),
}
"""Tables and columns that are read; bags before ROS 2 Iron have no definitions."""
FUNCTIONS = {"count", "min", "max", "length", "typeof"}
"""Functions of the queries below."""


class Sqlite(MessageLog):
    """One SQLite file of a bag of ROS 2."""

    format = "ROS 2 bag (SQLite)"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.parameters = {}
        self._names: dict[int, str] = {}
        self._first_rows: dict[str, int] = {}
        self._parsed = {}
        if not self.path.is_file():
            raise DataError(f"{self.path} does not exist, or is not a file")
        self._size = self.path.stat().st_size
        channels: dict[str, Channel] = {}
        counts: dict[str, int] = {}
        work = self._work()
        with closing(self._connect(work)) as connection:
            self._check_tables(connection, work)
            texts = self._definitions(connection, work)
            for number, name, kind, encoding in self._rows(
                connection, f"SELECT {self._short('topics')} FROM topics ORDER BY rowid", work
            ):
                work.count("topics")
                name, kind = str(name), str(kind)
                if not isinstance(number, int):  # a damaged database has values of any type
                    self._note(f"a topic without a number was left out: {name[:80]}")
                    continue
                self._names[number] = name
                channels[name] = self._channel(name, kind, str(encoding), texts.get(kind), work)
            query = (
                "SELECT topic_id, COUNT(*), MIN(rowid) FROM messages WHERE typeof(topic_id) = 'integer' "
                "GROUP BY topic_id"
            )
            for number, count, row in self._rows(connection, query, work):
                if number in self._names:
                    counts[self._names[number]] = int(count)
                    self._first_rows[self._names[number]] = int(row)
            query = "SELECT MIN(timestamp), MAX(timestamp) FROM messages WHERE typeof(timestamp) = 'integer'"
            ends = next(self._rows(connection, query, work), (0, 0))
        self.start_ns, self.stop_ns = (end if isinstance(end, int) else 0 for end in ends)
        self._describe(channels, counts, self._first, work)

    def _connect(self, work: Work) -> sqlite3.Connection:
        """Open the database so that nothing in it is executed but what its tables hold."""

        def tick() -> bool:
            with suppress(DataError):  # the error of the stopped query takes its place
                work.count("steps of the database", STEPS)
            return work.exceeded is not None

        try:
            # immutable: neither a journal nor a lock is written beside a log
            uri = f"{self.path.resolve().as_uri()}?mode=ro&immutable=1"
            connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.set_progress_handler(tick, STEPS)
            connection.set_authorizer(_allowed)
            return connection
        except sqlite3.Error as error:
            raise self._failure(error, work) from error

    def _failure(self, error: Exception, work: Work) -> DataError:
        if work.exceeded is not None:
            return work.exceeded
        return DataError(f"{self.path} cannot be read as a bag of ROS 2 ({error}); record it again, or copy it anew")

    def _rows(self, connection: sqlite3.Connection, query: str, work: Work) -> Iterator[tuple[Any, ...]]:
        try:
            yield from connection.execute(query)
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise self._failure(error, work) from error

    def _check_tables(self, connection: sqlite3.Connection, work: Work) -> None:
        """A bag has plain tables; what a view or a computed column holds is none of its data, and can be endless."""
        for table, needed in COLUMNS.items():
            query = f"SELECT type, rootpage, sql FROM sqlite_master WHERE name = '{table}' COLLATE NOCASE"
            for kind, page, text in self._rows(connection, query, work):
                if kind != "table" or not page or not re.match(r"\s*CREATE\s+TABLE\b", str(text)[:1000], re.IGNORECASE):
                    raise DataError(f"{self.path}: {table} is not a table but a view; this is not a bag of ROS 2")
            rows = self._rows(connection, f"PRAGMA table_xinfo({table})", work)
            columns = {row[1].lower(): row[6] for row in rows}
            for name in needed:
                if columns.get(name):
                    raise DataError(f"{self.path}: column {name} of {table} is computed; this is not a bag of ROS 2")
            if "rowid" in columns:  # it would hide the number of a row
                raise DataError(f"{self.path}: {table} has a column 'rowid'; this is not a bag of ROS 2")

    def _short(self, table: str) -> str:
        """The columns of a table; a damaged value can be longer than the file, and is read as missing."""
        return ", ".join(f"CASE WHEN length({name}) <= {self._size} THEN {name} END" for name in COLUMNS[table])

    def _definitions(self, connection: sqlite3.Connection, work: Work) -> dict[str, tuple[str, str]]:
        """Language and text of the definitions of message types; bags before ROS 2 Iron have none."""
        query = "SELECT name FROM sqlite_master WHERE name = 'message_definitions'"
        if not list(self._rows(connection, query, work)):
            return {}
        texts = {}
        query = f"SELECT {self._short('message_definitions')} FROM message_definitions"
        for kind, language, text in self._rows(connection, query, work):
            work.count("characters of definitions", len(str(text)))
            texts[str(kind)] = (str(language), str(text))
        return texts

    def _channel(self, name: str, kind: str, encoding: str, definition: tuple[str, str] | None, work: Work) -> Channel:
        if encoding != "cdr":
            return Channel(kind, None, encoding, f"messages in the encoding {encoding[:40]!r} are not read (cdr is)")
        where = f"{self.path}, topic {name}"
        try:
            if definition is not None and definition[1]:
                language, text = definition
                return channel_of(kind, "cdr", self._parse(kind, text, where, work, idl="idl" in language))
            return channel_of(kind, "cdr", known(kind, version=2))
        except DataError as error:
            return Channel(kind, None, "cdr", str(error))

    def _first(self, topics: set[str], work: Work) -> dict[str, bytes]:
        """The first message of every topic."""
        first = {}
        with closing(self._connect(work)) as connection:
            for name in topics:
                query = f"SELECT {self._short('messages')} FROM messages WHERE rowid = {self._first_rows[name]}"
                for _, _, data in self._rows(connection, query, work):
                    if isinstance(data, bytes):
                        first[name] = data
        return first

    def _batches(
        self, topics: Collection[str], work: Work, start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[Batch]:
        wanted = {number: name for number, name in self._names.items() if name in topics}
        if not wanted:
            return
        # the plus keeps an index from being used, after which the rows would have to be sorted
        conditions = [f"+topic_id IN ({', '.join(map(str, wanted))})"]
        conditions += [] if start_ns is None else [f"timestamp >= {start_ns}"]
        conditions += [] if stop_ns is None else [f"timestamp < {stop_ns}"]
        where = " AND ".join(conditions)
        query = f"SELECT {self._short('messages')} FROM messages WHERE {where} ORDER BY rowid"
        with closing(self._connect(work)) as connection:
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
                        work.count("messages", rows)
                        work.count("bytes of unpacked messages", held)
                        yield batch
                        batch, held, rows = {}, 0, 0
            except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
                if work.exceeded is not None:
                    raise work.exceeded from error
                self._note(f"the database is damaged: {error}; read up to the damage")
            if batch:
                yield batch


@LOG_READERS.register("ros2")
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
        self._size = sum(part._size for part in self._parts)
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
        self, topics: Collection[str], work: Work, start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[Batch]:
        for part in self._parts:
            yield from part._batches([name for name in topics if name in part._channels], work, start_ns, stop_ns)
        self._collect_notes()


def _allowed(action: int, first: str | None, second: str | None, _: str | None, inside: str | None) -> int:
    """What a query may do: read tables, and call the functions above; nothing inside a view or a trigger."""
    plain = (
        action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
        or (action == sqlite3.SQLITE_FUNCTION and second in FUNCTIONS)
        or (action == sqlite3.SQLITE_PRAGMA and first == "table_xinfo")
    )
    return sqlite3.SQLITE_OK if plain and inside is None else sqlite3.SQLITE_DENY


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
