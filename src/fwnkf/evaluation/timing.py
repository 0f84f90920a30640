"""Time measured side by side: on a busy machine the ratio of two times says more than either."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

__all__ = ["interleave", "interleaved"]


def interleave(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    calls: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds per call of each candidate, measured in turn after a call that does not count.

    Each round times every candidate, so that a change of load meets all of them.

    Args:
        candidates: functions by name.
        rounds: how often each is timed.
        calls: calls of a candidate in one round.
        clock: ``time.process_time`` counts processor time, which other load hardly changes.

    Returns:
        Seconds by name.

    >>> taken = interleave({"short": lambda: sum(range(10)), "long": lambda: sum(range(100_000))}, rounds=3)
    >>> taken["long"] > taken["short"]
    True
    """
    taken = interleaved(candidates, rounds, calls, clock)
    return {name: statistics.median(values) for name, values in taken.items()}


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    calls: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """As :func:`interleave`, with the seconds of every round instead of their median.

    Args:
        candidates, rounds, calls, clock: as there.

    Returns:
        Seconds per call of each round, by name.

    >>> [len(values) for values in interleaved({"sum": lambda: sum(range(10))}, rounds=3).values()]
    [3]
    """
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for call in candidates.values():
        call()
    for _ in range(rounds):
        for name, call in candidates.items():
            begin = clock()
            for _ in range(calls):
                call()
            taken[name].append((clock() - begin) / calls)
    return taken
