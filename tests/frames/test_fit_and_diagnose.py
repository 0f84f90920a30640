"""``fwnkf.fit`` and ``diagnose`` on frames: what they find in the same numbers given otherwise."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
import torch

import fwnkf
from fwnkf.diagnosis import diagnose
from fwnkf.errors import ConfigError, DataError
from fwnkf.logs import open_log

from .libraries import LIBRARIES, by_column, by_index


def walk(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    states = 0.1 * generator.standard_normal(count).cumsum()
    return states, states + 0.5 * generator.standard_normal(count)


def model() -> fwnkf.KF:
    one = torch.ones(1, 1).double()
    return fwnkf.KF(F=one, H=one, Q=one, R=one, dt=0.1, channels=("level",))


@pytest.mark.parametrize("library", LIBRARIES)
def test_frames_of_other_lengths_are_records_that_end_with_nothing_measured(library):
    lengths = (80, 60, 70)
    records = [walk(seed, count)[1] for seed, count in enumerate(lengths)]
    y = torch.full((3, 80, 1), torch.nan).double()
    for row, record in zip(y, records, strict=True):
        row[: len(record), 0] = torch.from_numpy(record)
    frames = [LIBRARIES[library](0.1 * np.arange(len(record)), {"level": record}) for record in records]
    given, found = (fwnkf.fit(model(), data, iterations=3, held_out=[2]) for data in (y, frames))
    assert found.report.parameters == given.report.parameters
    assert found.report.held_out == given.report.held_out


def test_one_frame_is_one_record_and_its_truth_is_a_frame():
    states, level = walk(0, 80)
    frame = by_index(0.1 * np.arange(80), {"height": level})
    truth = pandas.DataFrame({"x": states})
    y, x = (torch.from_numpy(values)[None, :, None] for values in (level, states))
    given = fwnkf.fit(model(), y, truth=x, iterations=3)
    found = fwnkf.fit(model(), frame, truth=truth, iterations=3, columns={"level": "height"})
    assert found.report.parameters == given.report.parameters
    with pytest.raises(DataError, match="the frames have 80 rows, and those of the truth 79"):
        fwnkf.fit(model(), frame, truth=truth[1:], columns={"level": "height"})
    with pytest.raises(ConfigError, match="y are frames"):
        fwnkf.fit(model(), frame, truth=x)
    with pytest.raises(ConfigError, match="y is a tensor"):
        fwnkf.fit(model(), y, truth=truth)


def shaken(count: int = 400) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    line = np.sin(2 * np.pi * 23 * np.arange(count) / 100)
    return {f"gyro_{axis}": 1.0 * line + 0.01 * generator.standard_normal(count) for axis in "xyz"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_has_the_findings_of_the_same_table_in_a_file(library, tmp_path):
    data, time = shaken(), np.arange(400) / 100
    table = np.column_stack([time, *(np.degrees(values) for values in data.values())])
    header = "time [s]," + ",".join(f"{name} [deg/s]" for name in data)
    np.savetxt(tmp_path / "run.csv", table, "%.17g", ",", header=header, comments="")
    from_file = diagnose(open_log(tmp_path / "run.csv"))
    degrees = {name: np.degrees(values) for name, values in data.items()}
    if library == "xarray":
        frame = LIBRARIES[library](time, degrees)
        for name in degrees:
            frame[name].attrs["units"] = "deg/s"
    else:
        frame = LIBRARIES[library](time, {f"{name} [deg/s]": values for name, values in degrees.items()})
    found = diagnose(frame)
    assert found.findings == from_file.findings
    assert found.peaks == from_file.peaks
    assert found.findings[0].cause == "vibration"


def test_a_diagnosis_takes_dates_and_columns_of_other_names():
    time = np.datetime64("2026-05-01T12:00:00", "ns") + (np.arange(400) * 10_000_000).astype("m8[ns]")
    data = {name.replace("gyro_", "w"): np.degrees(values) for name, values in shaken().items()}
    chosen = {f"gyro_{axis}": f"w{axis}*{np.pi / 180!r}" for axis in "xyz"}
    found = diagnose(by_column(time, data), columns=chosen)
    assert {peak.channel for peak in found.peaks} == {"gyro_x", "gyro_y", "gyro_z"}
    assert found.findings[0].cause == "vibration"


def test_a_diagnosis_needs_a_time():
    with pytest.raises(DataError, match=r"needs the time of each row, .*\(gyro_x, gyro_y, gyro_z\)"):
        diagnose(by_column(None, shaken()))
