"""Recordings and blocks of samples from logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from fwnkf.data.log_blocks import SampleBlocks
from fwnkf.data.log_recording import recording
from fwnkf.errors import DataError
from fwnkf.logs.log import BLOCK, Log, Source, Stream, Topic


class Memory(Log):
    """A log of given streams, which are the standard signals of the same name."""

    format = "memory"

    def __init__(self, **streams: Stream) -> None:
        self.path = Path("flight.log")
        self.parameters = {}
        self.streams = streams
        self.topics = {n: Topic(n, n, tuple(s.columns), len(s)) for n, s in streams.items()}

    def read(self, topic: str, fields: Sequence[str] | None = None) -> Stream:
        return self.streams[topic]

    def blocks(self, wanted: Mapping[str, Sequence[str]], samples: int = BLOCK) -> Iterator[Mapping[str, Stream]]:
        """Blocks by time, as a recorder would write them."""
        end = max(float(np.nanmax(self.streams[topic].time)) for topic in wanted)
        for begin in np.arange(0.0, end + 1.0):
            part = {}
            for topic in wanted:
                stream = self.streams[topic]
                rows = (stream.time >= begin) & (stream.time < begin + 1)
                part[topic] = Stream(topic, stream.time[rows], {n: v[rows] for n, v in stream.columns.items()})
            yield part

    def sources(self) -> tuple[Source, ...]:
        return tuple(Source(n, n, n, {column: (column, 1.0) for column in s.columns}) for n, s in self.streams.items())


class InOrder(Memory):
    """Blocks by number, with whatever stamps."""

    def blocks(self, wanted: Mapping[str, Sequence[str]], samples: int = BLOCK) -> Iterator[Mapping[str, Stream]]:
        longest = max(len(self.streams[topic]) for topic in wanted)
        for begin in range(0, longest, samples):
            yield {topic: self.streams[topic].take(np.arange(longest)[begin : begin + samples]) for topic in wanted}


def turning(time: np.ndarray) -> dict[str, np.ndarray]:
    """A pose that turns about z at 0.5 rad/s and moves along x at 2 m/s."""
    zero = np.zeros_like(time)
    return {
        "position_x": 2 * time, "position_y": zero, "position_z": zero + 1,
        "orientation_w": np.cos(time / 4), "orientation_x": zero, "orientation_y": zero,
        "orientation_z": np.sin(time / 4),
    }  # fmt: skip


def test_truth_and_extras_are_at_the_times_of_the_samples() -> None:
    time = 0.004 * np.arange(2500)
    imu = {f"{name}_{axis}": np.sin(time) for name in ("gyro", "accel") for axis in "xyz"}
    slow = 0.05 * np.arange(200)
    slow = slow[(slow < 4) | (slow > 5)]  # a gap of a second
    log = Memory(
        imu=Stream("imu", time, imu),
        pose=Stream("pose", slow, turning(slow)),
        rotor=Stream("rotor", np.array([1.0, 9.0]), {"rotor_1": np.array([10.0, 90.0])}),
    )
    flight = recording(log, truth="pose")
    assert [channel.unit for channel in flight.channels] == ["rad/s"] * 3 + ["m/s²"] * 3
    assert flight.truth is not None
    assert flight.truth_mask is not None
    known = flight.truth_mask.numpy()
    assert np.array_equal(
        known, (time <= slow[-1]) & ~((time > slow[slow < 4][-1] + 1e-9) & (time < slow[slow > 5][0] - 1e-9))
    )
    expected = np.stack(list(turning(time).values()), -1)
    assert np.allclose(flight.truth.numpy()[known], expected[known], atol=1e-9)
    rotor = flight.extras["rotor"][:, 0].numpy()
    inside = (time >= 1) & (time <= 9)
    assert np.allclose(rotor[inside], 10 * time[inside])
    assert np.isnan(rotor[~inside]).all()
    with pytest.raises(DataError, match="no velocity"):
        recording(log, "velocity")


def test_bad_stamps_are_repaired() -> None:
    time = 1000.0 * 0.004 * np.arange(500)  # milliseconds
    time[[100, 101]] = time[[101, 100]]
    time[200] = time[199]
    flight = recording(Memory(gyro=Stream("gyro", time, {f"gyro_{a}": time / 1000 for a in "xyz"})), "gyro")
    assert len(flight) == 499
    assert flight.rate == pytest.approx(250.0)
    assert any("ms" in note for note in flight.notes)


def test_blocks_join_signals_of_different_rates() -> None:
    fast, slow = 0.01 * np.arange(1000), 0.1 * np.arange(60) + 0.001
    log = Memory(
        gyro=Stream("gyro", fast, {f"gyro_{axis}": np.cos(fast) for axis in "xyz"}),
        pose=Stream("pose", slow, {f"position_{axis}": slow for axis in "xyz"}),
    )
    blocks = SampleBlocks(log, ["position_x", "gyro_y"], samples=100)
    parts = list(blocks)
    time, values = np.concatenate([part.time for part in parts]), np.concatenate([part.values for part in parts])
    assert np.array_equal(time, fast)
    assert np.array_equal(values[:, 1], np.cos(fast))
    rows = np.flatnonzero(np.isfinite(values[:, 0]))
    assert np.array_equal(rows, np.searchsorted(fast, slow))
    assert np.array_equal(values[rows, 0], slow)
    with pytest.raises(DataError, match="no signal and no column is called wind_x; there are: gyro_x"):
        SampleBlocks(log, ["wind_x"])


def test_blocks_leave_out_samples_that_go_backwards() -> None:
    time = 0.01 * np.arange(300)
    time[50], time[120], time[200] = time[49], 0.3, np.nan
    log = Memory(gyro=Stream("gyro", time, {f"gyro_{axis}": np.arange(300.0) for axis in "xyz"}))
    blocks = SampleBlocks(log, ["gyro_x"])
    parts = list(blocks)
    kept = np.concatenate([part.values[:, 0] for part in parts])
    assert np.array_equal(kept, np.delete(np.arange(300.0), [50, 120, 200])[: len(kept)])
    assert (np.diff(np.concatenate([part.time for part in parts])) > 0).all()


@pytest.mark.parametrize("samples", [7, 100, 1000, 1 << 16])
def test_wrong_stamps_cost_their_own_samples_alone(samples: int) -> None:
    """Wherever blocks end, also at the begin and at the end, also several in a row, and beside ordinary faults."""
    time = 0.01 * np.arange(3000)
    wrong = [0, 99, 100, 1000, 1500, 1501, 1502, 1503, 2000, 2100, 2998]
    time[wrong] = [1.7e9, 1e308, 55.0, 1e6, 1e6, 2e6, 3e6, 1e6, -1e9, np.nan, 31.0]
    log = InOrder(gyro=Stream("gyro", time, {f"gyro_{axis}": np.arange(3000.0) for axis in "xyz"}))
    blocks = SampleBlocks(log, ["gyro_x"], samples=samples)
    kept = np.concatenate([part.values[:, 0] for part in blocks])
    assert np.array_equal(kept, np.delete(np.arange(3000.0), wrong))
    assert blocks.dropped == len(wrong)
    assert "11 of 3,000 samples were left out" in " ".join(blocks.notes)
    assert not blocks.many_lost


def test_samples_lost_to_a_clock_that_goes_back_are_announced() -> None:
    time = np.concatenate([0.01 * np.arange(2000), 0.01 * np.arange(1000)])
    log = InOrder(gyro=Stream("gyro", time, {f"gyro_{axis}": np.arange(3000.0) for axis in "xyz"}))
    blocks = SampleBlocks(log, ["gyro_x"])
    kept = sum(len(part.time) for part in blocks)
    assert kept == 3000 - blocks.dropped
    assert "were lost" in blocks.many_lost[0]
    doubled = InOrder(gyro=Stream("gyro", np.repeat(time[:1000], 2), {f"gyro_{a}": np.arange(2000.0) for a in "xyz"}))
    blocks = SampleBlocks(doubled, ["gyro_x"])
    assert sum(len(part.time) for part in blocks) == 1000
    assert not blocks.many_lost  # repeated stamps are no loss of time


def test_irregular_stamps_stay_in_order() -> None:
    """A sensor whose rate wanders has no clock to which its stamps could be moved."""
    random = np.random.default_rng(5)
    steps = np.where(np.arange(4000) % 400 < 200, 0.0024, 0.0031) * random.uniform(0.3, 1.7, 4000)
    time = np.cumsum(steps)
    flight = recording(Memory(gyro=Stream("gyro", time, {f"gyro_{a}": time for a in "xyz"})), "gyro")
    assert len(flight) == 4000
    assert bool((flight.time.diff() > 0).all())
