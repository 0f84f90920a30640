"""Rows of the map in a file: measured one by one, kept as they come, never measured twice."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fwnkf.plain import number, plain
from tasks.interface import Say

Row = dict[str, Any]
KEY = ("part", "data", "axis", "kind", "hz", "width", "std", "q", "r", "estimator", "seed")
"""What names a row; each part has those that it needs."""
NUMBERS = ("rmse", "nees")
"""Columns that may be infinite or not a number, which JSON lacks: written as words."""


class Job(NamedTuple):
    """One row to be measured: what names it, the group it is told with, and what measures it."""

    key: Row
    group: str
    measure: Callable[[], Row]


def measure(jobs: Iterable[Job], store: Path, say: Say) -> None:
    """Measure what the store does not have. It can be stopped at any time and called again."""
    missing = unmeasured(jobs, read(store))
    begin = time.monotonic()
    for done, job in enumerate(missing, 1):
        before = time.process_time()
        row = job.key | job.measure() | {"cpu_seconds": round(time.process_time() - before, 2)}
        append(store, row)
        if done == len(missing) or missing[done].group != job.group:
            left = (time.monotonic() - begin) / done * (len(missing) - done)
            say(f"[{done}/{len(missing)}] when, {job.group}; about {math.ceil(left / 60)} min left")


def unmeasured(jobs: Iterable[Job], rows: Iterable[Row]) -> list[Job]:
    """The jobs of which there is no row, each once."""
    known = {_name(row) for row in rows}
    return list({_name(job.key): job for job in jobs if _name(job.key) not in known}.values())


def append(store: Path, row: Row) -> None:
    """One more row of the store."""
    store.parent.mkdir(parents=True, exist_ok=True)
    with store.open("a", encoding="utf-8") as file:
        file.write(json.dumps(plain(row), ensure_ascii=False) + "\n")


def read(store: Path) -> list[Row]:
    """All rows measured so far."""
    if not store.exists():
        return []
    rows = [json.loads(line) for line in store.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [
        row | {name: math.nan if row[name] is None else number(row[name]) for name in NUMBERS if name in row}
        for row in rows
    ]


def rounded(value: float) -> float:
    """Six digits, which keep rows short."""
    return float(f"{value:.6g}")


def _name(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in KEY)
