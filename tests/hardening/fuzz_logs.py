"""Fuzz the readers of logs: ``python -m tests.hardening.fuzz_logs FORMAT COUNT --seed S --rows FILE --corpus FOLDER``.

FORMAT is one of :data:`tests.logs.writers.FORMATS`, or ``all``. Cases are mutations of logs of a few samples; with
``atheris`` installed (``pip install atheris``) those that reach new lines of the readers are mutated further, and kept
in the folder of the corpus for later runs. Every case has to be read, or refused with an error of the package, within
limits on time and memory that grow with its size. Those that are not are written to the folder of the corpus.

Cases are run in blocks, each in a process of its own; a row is appended for each (:mod:`.rows`). A run that was stopped
goes on where its rows end, if it is started again with the same seed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from .rows import Row, append
from .rows import read as read_rows

BLOCK = 10_000
"""Cases of a process."""
SECONDS, SECONDS_FOR_MEGABYTE = 2.0, 20.0
"""Processor time that a case may take."""
MEGABYTES, MEGABYTES_FOR_MEGABYTE = 64.0, 1000.0
"""Memory by which a case may raise the peak of the process."""
SPACE = 8 << 30
"""Bytes of address space, so that a failure does not take the machine along."""
TOPICS = 2
"""Topics that are read of a case, and a signal; others of the next one."""
SUFFIXES = {
    "ulog": ".ulg", "dataflash": ".bin", "blackbox": ".bbl", "mcap": ".mcap", "ros1": ".bag", "ros2": ".db3",
    "csv": ".csv", "parquet": ".parquet",
}  # fmt: skip

CELLS = (
    "", "nan", "inf", "-1e400", "1e-320", "1_0", "0x1", "9" * 400, "-0", "1,5", "2024-05-01T12:00:00.25Z", "t [s]",
    "time", "stamp [ns]", "gyro_x (deg/s)", "acc_y [g]", "truth_x", "position_x_std", "motor_1", "\"", "\"a,b\"", "#",
    "\n", ";", "\t", "\ufeff", "\u202e", "\x1b[2J", "\udcff", "\0",
)  # fmt: skip
"""What takes the place of a cell of a table."""


class WrongError(Exception):
    """What was read is not consistent."""


class Reader:
    """Reads cases, and counts how they end."""

    def __init__(self, format: str, folder: Path, failures: Path, *, instrument: bool = False) -> None:
        with ExitStack() as stack:
            if instrument:  # lines are counted in what is imported here
                atheris = importlib.import_module("atheris")
                stack.enter_context(atheris.instrument_imports(include=["fwnkf.logs"], enable_loader_override=False))
            self.logs = importlib.import_module("fwnkf.logs")
            for module in importlib.import_module("fwnkf.logs.open").BUILT_IN:
                importlib.import_module("fwnkf.logs.log").LOG_READERS[module]
            self.stamps = importlib.import_module("fwnkf.logs.stamps")
        self.error = importlib.import_module("fwnkf.errors").FwnkfError
        self.mutated = importlib.import_module("tests.logs.mutated")
        self.path, self.failures = folder / f"case{SUFFIXES[format]}", failures
        self.outcomes: Counter[str] = Counter()
        self.longest = self.memory = 0.0
        self.seen: set[str] = set()
        signal.signal(signal.SIGPROF, self.mutated.expire)

    def everything(self) -> None:
        """Read what the commands read: topics, signals, blocks, windows, and repaired time stamps."""
        np = importlib.import_module("numpy")
        log = self.logs.open_log(self.path)
        turn = sum(self.outcomes.values())
        for name in in_turn(list(log.topics), turn, TOPICS):
            with suppress(self.error):  # one topic may be unreadable, and the others not
                stream = log.read(name)
                if any(len(values) != len(stream) for values in stream.columns.values()):
                    raise WrongError(f"columns of {name!r} differ in length")
        for source in in_turn(list(log.sources()), turn, 1):
            with suppress(self.error):
                stream = log.signal(source.name)
                if list(stream.columns) != list(source.columns):
                    raise WrongError(f"columns of {source.name!r} are {list(stream.columns)}")
                repaired = self.stamps.repair(stream, self.stamps.examine(stream, dropouts=log.dropouts))
                if not np.all(np.diff(repaired.time) > 0):
                    raise WrongError(f"the repaired time of {source.name!r} does not increase")
                fields = [field for field, _ in source.columns.values()][:2]
                whole = log.read(source.topic, fields)
                blocks = log.blocks({source.topic: fields}, 1 + len(whole) // 2)
                if sum(len(block[source.topic]) for block in blocks if source.topic in block) != len(whole):
                    raise WrongError(f"blocks of {source.topic!r} are not the whole")
                log.windows(source.topic, fields, [(0.0, 1.0)])
        log.airborne()

    def run(self, data: bytes) -> None:
        """One case."""
        self.path.write_bytes(data)
        share = len(data) / 1e6
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        limit = SECONDS + SECONDS_FOR_MEGABYTE * share
        signal.setitimer(signal.ITIMER_PROF, limit)
        outcome, trace = "read", ""
        try:
            self.everything()
        except self.error as error:
            outcome = "named error"
            if str(self.path) not in str(error):
                outcome, trace = "error without the file", f"{error}\n{traceback.format_exc()}"
        except (Exception, self.mutated.HangError) as error:
            outcome, trace = type(error).__name__, traceback.format_exc()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        seconds = time.process_time() - start
        if not trace and growth > MEGABYTES + MEGABYTES_FOR_MEGABYTE * share:
            outcome, trace = "memory", f"{growth:.0f} MB"
        self.longest, self.memory = max(self.longest, seconds), max(self.memory, growth)
        self.outcomes[outcome] += 1
        if trace:
            self.keep(data, outcome, trace)

    def keep(self, data: bytes, outcome: str, trace: str) -> None:
        """Write the first case of each kind of failure."""
        places = [line.strip() for line in trace.splitlines() if line.strip().startswith("File")]
        kind = " < ".join([outcome, *places[-1:]])
        if kind in self.seen:
            return
        self.seen.add(kind)
        self.failures.mkdir(parents=True, exist_ok=True)
        name = f"{self.path.suffix[1:]}-{outcome.replace(' ', '_')}-{hashlib.sha256(data).hexdigest()[:12]}"
        (self.failures / f"{name}{self.path.suffix}").write_bytes(data)
        (self.failures / f"{name}.txt").write_text(trace)

    def result(self) -> dict[str, Any]:
        return {"outcomes": dict(self.outcomes), "longest_s": self.longest, "memory_mb": self.memory}


def in_turn(names: list[Any], turn: int, count: int) -> list[Any]:
    """Some names, others with every turn."""
    start = turn % max(len(names), 1)
    return (names + names)[start : start + min(count, len(names))]


def write_seeds(format: str, folder: Path) -> None:
    """Logs of a few samples."""
    from fwnkf.data.flights import Vehicle, flight
    from tests.logs.writers import write_flight

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        written = write_flight(Path(scratch), format, flight(seed=1, seconds=0.2, vehicle=Vehicle(rate=50.0)))
        files = [written] if written.is_file() else [file for file in written.rglob("*") if file.suffix == ".db3"]
        for file in files:
            (folder / f"flight{file.suffix}").write_bytes(file.read_bytes())
    if format == "mcap":
        _write_mcap_seeds(folder)
    elif format == "parquet":
        _write_parquet_seeds(folder)
    elif format == "csv":
        (folder / "dates.csv").write_text(
            "# a comment\ntime;gyro_x [deg/s];speed (left);speed (right)\n"
            "2024-05-01T12:00:00.25Z;1e-3;;4\n2024-05-01 12:00:01+02:00;nan;-2;0x1\n"
        )


def _write_parquet_seeds(folder: Path) -> None:
    """Files whose pages are not compressed, of which a flipped bit is more than an error of unpacking."""
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    kinds = {"t": arrow.timestamp("us"), "gyro_x": arrow.float32(), "n": arrow.int64()}
    table = arrow.table({name: arrow.array([0, 1, None, 1], kind) for name, kind in kinds.items()})
    table = table.append_column("ok", arrow.array([True, None, False, True]))
    for name, dictionary, version in (("plain", False, "1.0"), ("dictionary", True, "2.0")):
        parquet.write_table(
            table, folder / f"{name}.parquet", compression="none", use_dictionary=dictionary, row_group_size=2,
            data_page_version=version,
        )  # fmt: skip


def _write_mcap_seeds(folder: Path) -> None:
    """Small files with encodings that the flight does not have, and without checksums that would hide mutations."""
    from .crafted_logs import channel, chunk, mcap, message, schema

    header = "std_msgs/Header header\n"
    defined = f"{header}string[] names\nfloat64[] values\nfloat32[3] fixed\n===\nMSG: std_msgs/Header\n"
    defined += "builtin_interfaces/Time stamp\nstring frame_id\n===\nMSG: builtin_interfaces/Time\n"
    defined += "int32 sec\nuint32 nanosec\n"
    cdr = b"\0\1\0\0" + bytes(8) + b"\2\0\0\0a\0\0\0" + b"\0\0\0\0" + b"\1\0\0\0" + bytes(8 + 12)
    ros1 = schema(2, "a/B", "Header header\nfloat64 x\n===\nMSG: std_msgs/Header\nuint32 seq\ntime stamp\nstring f\n")
    parts = [
        schema(1, "a/msg/A", defined, "ros2msg"), channel(1, 1, "/a", "cdr"), *(message(1, i, cdr) for i in range(4)),
        ros1, channel(2, 2, "/b", "ros1"), *(message(2, i, bytes(24)) for i in range(4)),
        channel(3, 0, "/c", "json"), *(message(3, i, b'{"x": [1, {"y": 2.5}], "z": true}') for i in range(4)),
    ]  # fmt: skip
    idl = "module a { module msg { struct A { double x; float y[3]; sequence<double> z; }; }; };"
    (folder / "loose.mcap").write_bytes(mcap(*parts))
    (folder / "chunk.mcap").write_bytes(mcap(chunk(b"".join(parts))))
    (folder / "idl.mcap").write_bytes(
        mcap(schema(1, "a/msg/A", idl, "ros2idl"), channel(1, 1, "/a", "cdr"), message(1, 1, b"\0\1\0\0" + bytes(48)))
    )


def mutate_cells(data: bytearray, rng: random.Random) -> None:
    """Change cells of a table of text, which a flipped bit would only make unreadable."""
    lines = data.split(b"\n")
    for _ in range(rng.choice((1, 1, 2, 5))):
        row = rng.randrange(len(lines)) if rng.random() < 0.7 else 0
        cells = lines[row].split(b",")
        place = rng.randrange(len(cells))
        kind = rng.random()
        if kind < 0.6:
            cells[place] = rng.choice(CELLS).encode("utf-8", "surrogateescape")
        elif kind < 0.75:
            cells[place] = rng.choice(rng.choice(lines).split(b","))
        elif kind < 0.9:
            del cells[place]
        else:
            lines.insert(row, lines[row])
        lines[row] = b",".join(cells)
    data[:] = b"\n".join(lines)


def mutate(format: str, data: bytearray, rng: random.Random) -> None:
    """Change a log in place."""
    from tests.logs.mutated import mutate as mutate_bytes

    if format == "csv" and rng.random() < 0.8:
        mutate_cells(data, rng)
    else:
        mutate_bytes(data, rng)


def originals_in(seeds: Path) -> list[bytes]:
    """The logs of :func:`write_seeds`; files that atheris adds to them have no suffix."""
    return [file.read_bytes() for file in sorted(seeds.iterdir()) if file.suffix]


def longest(seeds: Path) -> int:
    """Bytes of a case, at most: those of the logs that it is made from, and room for repeated parts."""
    return 2 * max(map(len, originals_in(seeds))) + 4096


def mutations(format: str, count: int, seed: int, seeds: Path) -> Iterator[bytes]:
    """Cases without a guide: each is a log with one to four changes."""
    originals, most = originals_in(seeds), longest(seeds)
    for index in range(count):
        rng = random.Random(f"{format} {seed} {index}")
        data = bytearray(rng.choice(originals))
        for _ in range(rng.choice((1, 1, 2, 4))):
            mutate(format, data, rng)
            data = data or bytearray(1)
        yield bytes(data[:most])


def child(format: str, count: int, seed: int, corpus: Path, result: Path) -> None:
    """Run a block of cases; its result is written when it ends."""
    resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    guided = importlib.util.find_spec("atheris") is not None
    reader = Reader(format, folder, corpus / "failures", instrument=guided)
    done = 0

    def case(data: bytes) -> None:
        nonlocal done
        if data and done < count:
            reader.run(data)
            done += 1
            if done == count or done % 500 == 0:
                result.write_text(json.dumps({"cases": done} | reader.result()))
        if done == count:
            reader.path.unlink()
            folder.rmdir()
            os._exit(0)  # libFuzzer would go on until it has run as many as it was told

    if not guided:
        for data in mutations(format, count, seed, corpus / format):
            case(data)
        return
    atheris = importlib.import_module("atheris")
    originals = originals_in(corpus / format)

    def mutator(data: bytes, most: int, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < 0.3 or not data:
            return bytes(atheris.Mutate(data, most))
        # a sound log half of the time: what led to new lines is mostly damaged, and refused early
        changed = bytearray(rng.choice(originals) if rng.random() < 0.5 else data)
        mutate(format, changed, rng)
        return bytes(changed[:most])

    options = [
        "-atheris_runs=0", f"-seed={seed}", f"-max_len={longest(corpus / format)}", "-len_control=0", "-timeout=120",
        "-rss_limit_mb=0", "-print_final_stats=0", "-verbosity=0", f"-artifact_prefix={corpus}/crash-",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(corpus / format)], case, custom_mutator=mutator)
    atheris.Fuzz()


def run_block(format: str, count: int, seed: int, corpus: Path) -> Row:
    """Run a block in a process of its own; a crash counts as a failure."""
    if not (corpus / format).is_dir():
        write_seeds(format, corpus / format)
    result = corpus / f"{format}-{seed}.json"
    result.unlink(missing_ok=True)
    words = [format, str(count), "--seed", str(seed)]
    command = [sys.executable, "-m", "tests.hardening.fuzz_logs", *words, "--corpus", str(corpus), "--child"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    counted = json.loads(result.read_text()) if result.is_file() else {"cases": 0, "outcomes": {}}
    outcomes: dict[str, int] = counted["outcomes"]
    if counted["cases"] < count:
        outcomes["crash"] = 1
        sys.stderr.write(f"{format}, seed {seed}: the process ended with {done.returncode}: {done.stderr[-2000:]}\n")
    result.unlink(missing_ok=True)
    return Row(
        harness="fuzz",
        target=f"log reader: {format}",
        command=f"python -m tests.hardening.fuzz_logs {' '.join(words)}",
        seed=seed,
        cases=counted["cases"] + outcomes.get("crash", 0),
        failures=sum(number for name, number in outcomes.items() if name not in ("read", "named error")),
        seconds=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        longest_s=counted.get("longest_s", 0.0),
        memory_mb=counted.get("memory_mb", 0.0),
        outcomes=outcomes,
    )


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("format", choices=(*SUFFIXES, "all"))
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--corpus", type=Path, default=Path(tempfile.gettempdir()) / "fuzz_logs")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    corpus = options.corpus.resolve()
    if options.child:
        child(options.format, options.count, options.seed, corpus, corpus / f"{options.format}-{options.seed}.json")
        return 0
    formats = list(SUFFIXES) if options.format == "all" else [options.format]
    known = read_rows([options.rows]) if options.rows is not None and options.rows.is_file() else []
    finished = {(row.target, row.seed) for row in known}
    failures = 0
    for number, start in enumerate(range(0, options.count, BLOCK)):
        for format in formats:  # in turn, so that a run that is stopped has tried all of them
            seed = options.seed + number
            if (f"log reader: {format}", seed) in finished:
                continue
            row = run_block(format, min(BLOCK, options.count - start), seed, corpus)
            failures += row.failures
            if options.rows is not None:
                append(options.rows, row)
            print(f"{row.target}: {row.cases:,} cases, {row.failures:,} failures, {row.outcomes}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
