"""Simulated flights as CSV and Parquet files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fwnkf.data.flight_table import flight_columns, write_flight_csv
from fwnkf.data.flights import Flight


def write_csv(folder: Path, flight: Flight) -> Path:
    """A flight as a CSV file."""
    return write_flight_csv(flight, folder / "flight.csv")


def write_parquet(folder: Path, flight: Flight) -> Path:
    """A flight as a Parquet file."""
    path = folder / "flight.parquet"
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(flight_columns(flight)), path)
    return path
