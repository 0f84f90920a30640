"""Read mutated logs and report what each took: ``python -m tests.logs.mutated FORMAT COUNT SCRATCH [FIRST]``.

Run in a process of its own, whose peak memory nothing else raises. Prints one JSON object for each log. Mutation number
``n`` of a format is the same in every run, so that a run that was stopped goes on with ``FIRST``. ``python -m
tests.logs.mutated table PAGE ROWS…`` writes the page of results from what was printed; formats without rows keep their
line.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from fwnkf.data.flights import Vehicle, flight
from fwnkf.errors import FwnkfError
from fwnkf.logs import open_log
from fwnkf.logs.stamps import examine

from .writers import FORMATS, write_flight

LIMIT = 20
"""Seconds of processor time for one log before it counts as a hang; those of the wall would depend on the machine."""
SPACE = 6 << 30
"""Bytes of address space, so that a failure does not take the machine along."""
EXTREMES = (
    0,
    1,
    127,
    128,
    255,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
KINDS = ("bits", "bits", "bytes", "cut", "splice", "delete", "repeat", "number", "number", "number", "zero")
FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class", "socket.connect",
    "ctypes.dlopen", "shutil.rmtree", "os.remove", "os.rename", "exec", "compile",
)  # fmt: skip
"""Audit events that reading a log must not cause."""


def place(rng: random.Random, size: int) -> int:
    """Anywhere, and half of the time in a header or in an index at the end."""
    span = min(4096, size)
    where = rng.random()
    if where < 0.35:
        return rng.randrange(span)
    return size - 1 - rng.randrange(span) if where < 0.5 else rng.randrange(size)


def mutate(data: bytearray, rng: random.Random) -> str:
    """Change the bytes of a file in place; returns what was done."""
    kind = rng.choice(KINDS)
    size = len(data)
    at = place(rng, size)
    length = min(rng.choice((1, 4, 17, 300, 5000)), size - at)
    if kind == "bits":
        count = rng.choice((1, 1, 2, 8, 100))
        for _ in range(count):
            data[place(rng, size)] ^= 1 << rng.randrange(8)
    elif kind == "bytes":
        data[at : at + length] = rng.randbytes(length)
    elif kind == "cut":
        del data[at:]
    elif kind == "splice":
        other = rng.randrange(size)
        data[at : at + length] = data[other : other + length]
    elif kind == "delete":
        del data[at : at + length]
    elif kind == "repeat":
        data[at:at] = data[at : at + length] * rng.choice((1, 2, 50))
    elif kind == "zero":
        data[at : at + length] = bytes(length)
    else:  # lengths, counts and offsets, in either order of bytes
        for _ in range(rng.choice((1, 1, 1, 10))):
            at, width = place(rng, size), rng.choice((1, 2, 4, 8))
            value = rng.choice(EXTREMES) & (1 << 8 * width) - 1
            data[at : at + width] = value.to_bytes(width, rng.choice(("little", "big")))
    return f"{kind} at {at}, {length} bytes"


def read(path: Path, topics: int | None = None) -> str:
    """Read a log, as the diagnosis would, and its topics one by one; returns its state in a few words."""
    log = open_log(path)
    samples = 0
    for topic in list(log.topics)[:topics]:
        stream = log.read(topic)
        assert all(len(values) == len(stream) for values in stream.columns.values()), topic
        samples += len(stream)
    for source in log.sources()[:topics]:
        stream = log.signal(source.name)
        assert list(stream.columns) == list(source.columns)
        examine(stream, dropouts=log.dropouts)
    log.airborne()
    return f"{samples} samples, {len(log.notes)} notes"


class HangError(Exception):
    """Raised when a log takes too long."""


def expire(*_: object) -> None:
    raise HangError(f"more than {LIMIT} s")


def main(name: str, count: int, scratch: Path, first: int = 0) -> None:
    signal.signal(signal.SIGPROF, expire)
    resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
    scratch.mkdir(parents=True, exist_ok=True)
    source = write_flight(scratch, name, flight(seed=1, seconds=2.0, vehicle=Vehicle(rate=100.0)))
    whole = read(source)
    files = [source] if source.is_file() else sorted(file for file in source.rglob("*") if file.is_file())
    originals = {file: file.read_bytes() for file in files}
    events: list[str] = []

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event in FORBIDDEN and len(events) < 100:
            events.append(f"{event} {str(arguments)[:100]}")

    watching = False
    sys.addaudithook(audit)
    work = scratch / "mutated" / source.name
    print(json.dumps({"source": name, "bytes": sum(map(len, originals.values())), "whole": whole}), flush=True)
    for index in range(first, first + count):
        rng = random.Random(f"{name} {index}")
        shutil.rmtree(work.parent, ignore_errors=True)
        chosen = rng.choices(files, [len(originals[file]) ** 0.5 for file in files])[0]
        for file, original in originals.items():
            copy = work if source.is_file() else work / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            data = bytearray(original)
            if file == chosen:
                what = mutate(data, rng)
            copy.write_bytes(data)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        outcome, text = "read", ""
        events.clear()
        watching = True
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        try:
            text = read(work)
        except FwnkfError as error:
            outcome, text = "named", f"{type(error).__name__}: {error}"
        except (Exception, HangError) as error:
            outcome, text = type(error).__name__, str(error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            watching = False
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        report = {
            "index": index, "what": f"{chosen.name}: {what}", "outcome": outcome, "text": text[:300],
            "same": text == whole, "seconds": round(seconds, 3), "growth_mb": round((peak - before) / 1024, 1),
            "events": events[:3],
        }  # fmt: skip
        print(json.dumps(report), flush=True)


def table(page: Path, files: list[Path]) -> None:
    """Write the counts, times and memory of runs as a page."""
    lines = [
        "# Mutated logs",
        "",
        "Logs of a simulated flight with flipped bits, with parts cut, spliced, repeated, deleted or overwritten,",
        "and with extreme values for lengths and counts. Every one has to give a named error or a read; anything",
        "else is a failure: another error, a hang (20 s), a crash, an attempt to execute something. Unchanged: as",
        "many samples and notes as without the mutation. Memory is the largest growth of the process by one log.",
        "",
        "Command: `python -m tests.logs.mutated FORMAT 10000 FOLDER` for each format, then",
        "`python -m tests.logs.mutated table docs/results/mutated_logs.md ROWS…`.",
        "",
        "| format | bytes | mutated | read | of them unchanged | named error | failures | longest (s) | memory (MB) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    kept = {line.split(" ")[1]: line for line in page.read_text().splitlines() if line.startswith("| ")}
    for file in files:
        head, *rows = [json.loads(line) for line in file.read_text().splitlines()]
        count = {name: sum(row["outcome"] == name for row in rows) for name in ("read", "named")}
        failures = len(rows) - sum(count.values()) + sum(bool(row["events"]) for row in rows)
        cells = [
            head["source"], f"{head['bytes']:,}", f"{len(rows):,}", f"{count['read']:,}",
            f"{sum(row['same'] for row in rows):,}", f"{count['named']:,}", failures,
            f"{max(row['seconds'] for row in rows):.2f}", f"{max(row['growth_mb'] for row in rows):.1f}",
        ]  # fmt: skip
        kept[head["source"]] = "| " + " | ".join(map(str, cells)) + " |"
    lines += [kept[name] for name in FORMATS if name in kept]
    page.write_text("\n".join(lines) + "\n")


if __name__ == "__main__" and sys.argv[1] == "table":
    table(Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
elif __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 0)
