"""Time and memory of reading logs, beside the library that others read each format with.

    python benchmarks/reading.py [--rounds 5] [--seconds 60] [--memory GB] [--rows FILE] [--markdown FILE]

A simulated flight is written in every format, and read as a whole by turns: by ``fwnkf.logs`` into columns of numbers,
and by the library. What the library does is in the table: most hand out messages that are not decoded yet. ``--memory``
writes an MCAP file of that size, and measures the peak memory of reading it in a process of its own.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tables import shown, write

from fwnkf.data.flights import flight
from fwnkf.evaluation.timing import interleave
from fwnkf.logs import open_log
from fwnkf.logs.ros_write import McapFile

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))


def read_all(path: Path) -> int:
    """All numbers of all topics; returns the number of samples."""
    log = open_log(path)
    wanted = {name: topic.fields for name, topic in log.topics.items() if topic.fields}
    return sum(len(stream) for block in log.blocks(wanted) for stream in block.values())


def read_mcap(path: Path) -> int:
    from mcap.reader import make_reader

    with path.open("rb") as file:
        return sum(1 for _ in make_reader(file).iter_messages(log_time_order=False))


def read_mcap_decoded(path: Path) -> int:
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        return sum(1 for _ in reader.iter_decoded_messages(log_time_order=False))


def read_ros1(path: Path) -> int:
    from rosbags.rosbag1 import Reader

    with Reader(path) as reader:
        return sum(1 for _ in reader.messages())


def read_ros2(path: Path) -> int:
    from rosbags.rosbag2 import Reader

    with Reader(path) as reader:
        return sum(1 for _ in reader.messages())


def read_csv(path: Path) -> int:
    with path.open(newline="") as file:
        rows = csv.reader(file)
        next(rows)
        return len([[float(cell) for cell in row] for row in rows])


def read_parquet(path: Path) -> int:
    import pyarrow.parquet

    return max(len(column.to_numpy()) for column in pyarrow.parquet.read_table(path).columns)


def read_ulog(path: Path) -> int:
    from pyulog import ULog

    return sum(len(item.data["timestamp"]) for item in ULog(str(path)).data_list)


def read_dataflash(path: Path) -> int:
    from pymavlink.DFReader import DFReader_binary

    reader, count = DFReader_binary(str(path)), 0
    while reader.recv_msg() is not None:
        count += 1
    return count


def read_blackbox(path: Path) -> int:
    from orangebox import Parser

    return sum(1 for _ in Parser.load(str(path)).frames())


LIBRARIES: dict[str, list[tuple[str, Callable[[Path], int]]]] = {
    "mcap": [("mcap, not decoded", read_mcap), ("mcap and mcap-ros2-support", read_mcap_decoded)],
    "ros1": [("rosbags, not decoded", read_ros1)],
    "ros2": [("rosbags, not decoded", read_ros2)],
    "csv": [("csv and float", read_csv)],
    "parquet": [("pyarrow", read_parquet)],
    "ulog": [("pyulog", read_ulog)],
    "dataflash": [("pymavlink", read_dataflash)],
    "blackbox": [("orangebox", read_blackbox)],
}


def measure(rounds: int, seconds: float) -> list[dict[str, Any]]:
    """A row for each format and library; a library that is not installed has none."""
    from tests.logs.writers import write_flight

    simulated, rows = flight(seed=1, seconds=seconds), []
    for name, libraries in LIBRARIES.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                path = write_flight(Path(folder), name, simulated)
            except ModuleNotFoundError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            candidates: dict[str, Callable[[], int]] = {"ours": lambda path=path: read_all(path)}
            for library, call in libraries:
                try:
                    call(path)
                except ModuleNotFoundError as error:
                    print(f"{name}: {error}", file=sys.stderr)
                    continue
                candidates[library] = lambda call=call, path=path: call(path)
            taken = interleave(candidates, rounds, clock=time.process_time)
            files = [path] if path.is_file() else list(path.iterdir())
            for library in candidates:
                if library != "ours":
                    rows.append(
                        {"format": name, "megabytes": sum(file.stat().st_size for file in files) / 1e6,
                         "samples": read_all(path), "ours_ms": 1e3 * taken["ours"], "library": library,
                         "library_ms": 1e3 * taken[library], "ratio": taken["ours"] / taken[library]}
                    )  # fmt: skip
    return rows


def write_large(path: Path, gigabytes: float) -> int:
    """An MCAP file with an IMU at 1 kHz and images; returns the number of samples."""
    samples, block = int(gigabytes * 1e9 / 700), 50_000
    random = np.random.default_rng(0)
    with McapFile(path, compression="none") as file:
        for start in range(0, samples, block):
            rows = np.arange(start, min(start + block, samples))
            numbers = random.normal(size=(len(rows), 37))
            file.write("/imu", "sensor_msgs/msg/Imu", 10**18 + rows * 10**6, numbers, frame="imu")
            file.write("/other", "sensor_msgs/msg/Imu", 10**18 + rows * 10**6, numbers, frame="imu")
    return samples


MEMORY = """
import resource, sys
from fwnkf.data.log_blocks import SampleBlocks
from fwnkf.logs import open_log
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
names = [f"{name}_{axis}" for name in ("gyro", "accel") for axis in "xyz"]
count = sum(len(samples.time) for samples in SampleBlocks(open_log(sys.argv[1]), names))
print(count, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def memory(gigabytes: float) -> dict[str, Any]:
    """Peak memory of a process that reads a large file in blocks; the imports alone beside it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.mcap"
        samples = write_large(path, gigabytes)
        size, begin = path.stat().st_size, time.perf_counter()
        printed = subprocess.run([sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True)
        count, before, peak = map(int, printed.stdout.split())
        assert count == samples
        return {"megabytes": size / 1e6, "samples": samples, "seconds": time.perf_counter() - begin,
                "imports_mb": before / 1024, "peak_mb": peak / 1024}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the simulated flight")
    parser.add_argument("--memory", type=float, metavar="GB", help="also read an MCAP file of this size")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    rows = measure(options.rounds, options.seconds)
    text = (
        f"A simulated flight of {options.seconds:g} s (seed 1), all topics and fields. Milliseconds of processor time, "
        f"medians of {options.rounds} rounds in which ours and the libraries take turns; `ratio` is ours over theirs. "
    )
    if options.memory:
        taken = memory(options.memory)
        text += (
            f"An MCAP file of {taken['megabytes']:,.0f} MB with two topics: the {taken['samples']:,} samples of one of "
            f"them were read in {taken['seconds']:.0f} s with a peak of {taken['peak_mb']:.0f} MB of memory, of which "
            f"{taken['imports_mb']:.0f} MB are the imports."
        )
    for row in rows:
        print(" ".join(f"{name}={shown(value)}" for name, value in row.items()))
    print(text)
    if options.rows:
        options.rows.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    if options.markdown:
        write(options.markdown, "Reading logs", text, rows)


if __name__ == "__main__":
    main()
