"""A bound on the work that a log may cause, in proportion to the size of its file.

A file of a few kilobytes can describe millions of messages: compressed repetitions, a database whose pages refer to
each other, definitions that are nested or repeated. Every reader counts what it is about to do and stops at the limit,
so that time and memory stay in proportion to what was copied, mailed or uploaded.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import DataError

LIMITS: dict[str, tuple[int, int]] = {
    "messages": (1_000_000, 1),
    "bytes of unpacked messages": (1 << 30, 1000),
    "bytes of JSON": (1 << 26, 20),
    "visited fields of messages": (1_000_000, 4),
    "characters of definitions": (1 << 23, 20),
    "characters of definitions in IDL": (1 << 18, 1),
    "fields of definitions": (100_000, 1),
    "topics": (10_000, 0),
    "numbers in a table": (20_000_000, 8),
    "steps of the database": (3_000_000, 20),
}
"""What is counted: the number that every file may have, and the number for each of its bytes.

Real logs stay far below: a message takes about ten bytes or more even when it is compressed, a number of a table one.
"""


class Work:
    """What reading one file takes, so far.

    >>> Work("run.mcap", 2000).count("messages", 5_000_000)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fwnkf.errors.DataError: run.mcap: more than 1,002,000 messages in a file of 2,000 bytes, ...
    """

    def __init__(self, path: str | Path, size: int) -> None:
        self.path, self.size = path, size
        self.done = dict.fromkeys(LIMITS, 0)
        self.exceeded: DataError | None = None

    def left(self, what: str) -> int:
        """How many are left, of a key of :data:`LIMITS`."""
        least, for_each_byte = LIMITS[what]
        return least + for_each_byte * self.size - self.done[what]

    def count(self, what: str, number: int = 1) -> None:
        """Count before doing it. Raises DataError above the limit."""
        left = self.left(what)
        if number > left:
            self.exceeded = DataError(
                f"{self.path}: more than {left + self.done[what]:,} {what} in a file of {self.size:,} bytes, far more "
                "than a recording of this size holds: the file is damaged, or was made to exhaust memory; if you "
                f"trust it, split it, write it without compression, or raise fwnkf.logs.work.LIMITS[{what!r}]"
            )
            raise self.exceeded
        self.done[what] += number
