"""How long work will still take, said the same way wherever progress is shown."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


def duration(seconds: float) -> str:
    """A length of time as people say it, in at most two units.

    >>> duration(0.4), duration(59.6), duration(600), duration(7380)
    ('1 s', '1 min', '10 min', '2 h 3 min')
    """
    whole = max(math.ceil(seconds), 1)
    if whole < 60:
        return f"{whole} s"
    minutes = math.ceil(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


class Remaining:
    """The time that is left of work whose amount is known, at the speed since it began.

    Args:
        total: the amount of work in any unit; None if nobody knows it.
        done: what was done before, by a run that is continued: it says nothing about the speed of this one.
        clock: seconds.

    >>> times = iter([0.0, 30.0])
    >>> Remaining(100, clock=lambda: next(times)).left(25)
    '2 min left'
    """

    def __init__(self, total: float | None, done: float = 0.0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.first, self.clock = total, done, clock
        self.began = clock()

    def seconds(self, done: float) -> float | None:
        """Seconds until ``total``, if ``done`` is done now; None while nothing says how fast it goes."""
        if self.total is None or done <= self.first:
            return None
        return (self.clock() - self.began) / (done - self.first) * max(self.total - done, 0.0)

    def left(self, done: float) -> str:
        """The same as words, ``"3 min left"``; empty before the end can be foreseen, and at the end."""
        seconds = self.seconds(done)
        return f"{duration(seconds)} left" if seconds else ""

    def added(self, done: float, separator: str = ", ") -> str:
        """The words after a separator, or nothing: to be put at the end of a line.

        >>> Remaining(None).added(5)
        ''
        """
        words = self.left(done)
        return f"{separator}{words}" if words else ""
