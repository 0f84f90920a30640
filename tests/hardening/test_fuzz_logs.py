"""A short run of the fuzzer of the log readers, what it found in the past, and that it finds what is wrong."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest

from fwnkf.logs import open_log

from .crafted_logs import FMT, NUMBER, fmt, mcap, message, ulog_record
from .fuzz_logs import SUFFIXES, Reader, mutations, write_seeds

CASES = 120
NEEDS = {"mcap": "mcap", "ros1": "rosbags", "ros2": "rosbags", "parquet": "pyarrow"}
NAN = struct.pack("<f", math.nan)


@pytest.mark.parametrize("format", SUFFIXES)
def test_cases_are_read_or_refused(format: str, tmp_path: Path) -> None:
    if format in NEEDS:
        pytest.importorskip(NEEDS[format])
    write_seeds(format, tmp_path / "seeds")
    reader = Reader(format, tmp_path, tmp_path / "failures")
    for data in mutations(format, CASES, 0, tmp_path / "seeds"):
        reader.run(data)
    kept = [file.read_text() for file in (tmp_path / "failures").glob("*.txt")]
    assert set(reader.outcomes) <= {"read", "named error"}, kept
    assert sum(reader.outcomes.values()) == CASES
    assert reader.outcomes["read"] >= 3  # mutations are neither all fatal
    assert reader.outcomes["named error"] >= 3  # nor all harmless


class Broken(Reader):
    def everything(self) -> None:
        raise ZeroDivisionError("found")


class Slow(Reader):
    def everything(self) -> None:
        while True:
            pass


@pytest.mark.parametrize(("kind", "outcome"), [(Broken, "ZeroDivisionError"), (Slow, "HangError")])
def test_failures_are_counted_and_kept(kind: type[Reader], outcome: str, tmp_path: Path) -> None:
    reader = kind("csv", tmp_path, tmp_path / "failures")
    reader.run(b"case")
    assert reader.outcomes == {outcome: 1}
    (kept,) = (tmp_path / "failures").glob("*.csv")
    assert kept.read_bytes() == b"case"
    assert outcome in kept.with_suffix(".txt").read_text()


def ulog(*parts: bytes) -> bytes:
    return b"".join([b"ULog\x01\x12\x35\x01", bytes(8), ulog_record("B", bytes(40)), *parts])


def dataflash_sample(kind: int, form: str, *values: float) -> bytes:
    return b"\xa3\x95" + bytes([kind]) + struct.pack("<" + form, *values)


def test_numbers_of_a_px4_log_that_are_not_finite(tmp_path: Path) -> None:
    """The version and the kind of GPS fix are integers, unless a log says otherwise."""
    path = tmp_path / "log.ulg"
    path.write_bytes(
        ulog(
            ulog_record("I", bytes([20]) + b"float ver_sw_release" + NAN),
            ulog_record("F", b"sensor_gps:uint64_t timestamp;float fix_type;"),
            ulog_record("A", bytes(3) + b"sensor_gps"),
            ulog_record("D", bytes(2) + struct.pack("<Q", 5) + NAN),
        )
    )
    assert open_log(path).facts["gps_fix"] == "-1"


def test_numbers_of_an_ardupilot_log_that_are_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "log.bin"
    path.write_bytes(
        FMT
        + fmt(1, 15, "GPS", "Qf", "TimeUS,Status")
        + fmt(2, 47, "FMTU", "QfNN", "TimeUS,FmtType,UnitIds,MultIds")
        + fmt(3, 15, "UNIT", "Qf", "TimeUS,Id")
        + dataflash_sample(1, "Qf", 5, math.nan)
        + dataflash_sample(2, "Qf16s16s", 5, math.inf, b"s", b"F")  # type: ignore[arg-type]
        + dataflash_sample(3, "Qf", 5, math.nan)
    )
    assert open_log(path).facts["gps_fix"] == "-1"


def test_stamps_beyond_the_range_of_signed_integers(tmp_path: Path) -> None:
    path = tmp_path / "log.mcap"
    first = 2**64 - 1000
    path.write_bytes(mcap(NUMBER, *(message(1, first + 10 * i, bytes(8)) for i in range(5))))
    assert open_log(path).read("/a").time.tolist() == pytest.approx([0, 1e-8, 2e-8, 3e-8, 4e-8])


def test_blocks_end_where_a_clock_goes_back(tmp_path: Path) -> None:
    """A computed topic is divided by time; blocks in front of an earlier time were empty, without end."""
    path = tmp_path / "log.bin"
    stamps = [70, 60, 50, 40, 30, 20, 10, 0, 80, 90]
    samples = [dataflash_sample(1, "QHH", stamp * 1000, 1500 + stamp, 1000) for stamp in stamps]
    path.write_bytes(FMT + fmt(1, 15, "RCOU", "QHH", "TimeUS,C1,C2") + b"".join(samples))
    log = open_log(path)
    blocks = [block["RCOU/motors"] for block in log.blocks({"RCOU/motors": ["motor_1"]}, 3)]
    assert [stamp for block in blocks for stamp in block.time.tolist()] == log.read("RCOU/motors").time.tolist()
    assert max(map(len, blocks)) == 3
