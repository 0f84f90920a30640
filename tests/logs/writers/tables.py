"""Simulated flights as CSV and Parquet files: a row for each inertial sample, the other signals interpolated to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fwnkf.data.flights import Flight

Columns = dict[str, NDArray[np.float64]]


def columns(flight: Flight) -> Columns:
    """Columns by header, with units."""
    table: Columns = {"t [s]": flight.imu_time}
    for index, axis in enumerate("xyz"):
        table[f"gyro_{axis} [rad/s]"] = flight.gyro[:, index]
    for index, axis in enumerate("xyz"):
        table[f"accel_{axis} [m/s^2]"] = flight.accel[:, index]
    signals = [("rotor", "Hz", flight.rotor_time, flight.rotor), ("motor", "1", flight.motor_time, flight.motor)]
    for name, unit, time, values in signals:
        for number, column in enumerate(values.T if len(time) else ()):
            table[f"{name}_{number + 1} [{unit}]"] = np.interp(flight.received, time, column)
    if len(flight.pose_time):
        for index, axis in enumerate("xyz"):
            table[f"position_{axis} [m]"] = np.interp(flight.received, flight.pose_time, flight.position[:, index])
    return table


def write_csv(folder: Path, flight: Flight) -> Path:
    """A flight as a CSV file; numbers with all their digits."""
    path = folder / "flight.csv"
    table = columns(flight)
    rows = np.stack(list(table.values()), -1).tolist()
    path.write_text("\n".join([",".join(table), *(",".join(map(repr, row)) for row in rows)]) + "\n")
    return path


def write_parquet(folder: Path, flight: Flight) -> Path:
    """A flight as a Parquet file."""
    path = folder / "flight.parquet"
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns(flight)), path)
    return path
