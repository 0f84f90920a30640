"""Simulated flights as tables: a row for each inertial sample, the other signals interpolated to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .flights import Flight

Columns = dict[str, NDArray[np.float64]]


def flight_columns(flight: Flight) -> Columns:
    """Columns of a table by header, with units.

    Args:
        flight: A simulated flight.

    Returns:
        Time, gyroscope, accelerometer and, where the flight has them, rotor speeds, motor commands and position.

    >>> from fwnkf.data.flights import flight
    >>> list(flight_columns(flight(seconds=1.0)))[:3]
    ['t [s]', 'gyro_x [rad/s]', 'gyro_y [rad/s]']
    """
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


def write_flight_csv(flight: Flight, path: str | Path) -> Path:
    """Write a simulated flight as a CSV file that ``fwnkf diagnose`` and :func:`fwnkf.logs.open_log` read.

    Args:
        flight: A simulated flight.
        path: File to write; numbers have all their digits.

    Returns:
        The path.

    >>> import tempfile
    >>> from fwnkf.data.flights import flight
    >>> path = write_flight_csv(flight("vibration", seconds=1.0), Path(tempfile.mkdtemp()) / "flight.csv")
    >>> path.read_text()[:5]
    't [s]'
    """
    path = Path(path)
    table = flight_columns(flight)
    rows = np.stack(list(table.values()), -1).tolist()
    lines = [",".join(table), *(",".join(map(repr, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
