"""CSV and Parquet files as logs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fwnkf.errors import DataError
from fwnkf.logs import open_log

STYLES = {
    "standard": ["t [s]", "gyro_{} [rad/s]", "accel_{} [m/s^2]"],
    "short": ["t", "g{}", "a{}"],
    "greek": ["time_s", "w{}", "a{}"],
    "dotted": ["timestamp [ns]", "angular_velocity.{}", "linear_acceleration.{}"],
    "frames": ["#timestamp [ns]", "w_RS_S_{} [rad s^-1]", "a_RS_S_{} [m s^-2]"],
    "degrees": ["time [ms]", "Gyro{} (deg/s)", "Accel{} (g)"],
    "suffixes": ["time_us", "gyro_{}_dps", "acc_{}_mg"],
    "indexed": ["timestamp_us", "gyro[{}]", "acc[{}]"],
}
FACTORS = {"degrees": (math.pi / 180, 9.80665), "suffixes": (math.pi / 180, 9.80665e-3)}
STEPS = {"dotted": 1e9, "frames": 1e9, "degrees": 1e3, "suffixes": 1e6, "indexed": 1e6}


@pytest.mark.parametrize("style", STYLES)
def test_columns_are_recognised_by_name_and_unit(tmp_path: Path, style: str) -> None:
    time, gyro, accel = STYLES[style]
    axes = "012" if style == "indexed" else "XYZ" if style == "degrees" else "xyz"
    header = [time, *(gyro.format(axis) for axis in axes), *(accel.format(axis) for axis in axes)]
    values = np.random.default_rng(3).normal(size=(50, 6))
    stamps = np.arange(50) * 0.004
    path = tmp_path / "run.csv"
    rows = [
        ",".join(map(str, [t * STEPS.get(style, 1.0), *row])) for t, row in zip(stamps, values.tolist(), strict=True)
    ]
    path.write_text("\n".join([",".join(header), *rows]))
    stream = open_log(path).signal("imu")
    assert list(stream.columns) == [f"{name}_{axis}" for name in ("gyro", "accel") for axis in "xyz"]
    factors = np.repeat(FACTORS.get(style, (1.0, 1.0)), 3)
    assert np.allclose(stream.stack(), values * factors, rtol=1e-15, atol=0)
    assert np.allclose(stream.time, stamps, rtol=0, atol=1e-12)


def test_dates_keep_their_digits_and_blocks_are_parts(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    rows = [f"{1_700_000_000 + i * 0.25},{i},{i},{i},{60 * i},{i / 100}" for i in range(20)]
    path.write_text("\n".join(["time [s],x [m],y [m],z [m],rpm_1,motor_1", *rows]))
    log = open_log(path)
    assert log.start_ns == 1_700_000_000 * 10**9
    assert np.array_equal(log.signal("pose").time, np.arange(20) * 0.25)
    assert np.allclose(log.signal("rotor").columns["rotor_1"], np.arange(20))
    assert np.array_equal(log.signal("motor").columns["motor_1"], np.arange(20) / 100)
    blocks = [block["run"] for block in log.blocks({"run": ["x"]}, samples=7)]
    assert [len(block) for block in blocks] == [7, 7, 6]
    assert np.array_equal(np.concatenate([block.columns["x"] for block in blocks]), np.arange(20))


def test_parquet_is_read_like_csv(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = [f"{name}_{axis}" for name in ("gyro", "accel") for axis in "xyz"]
    table = arrow.table({"t": np.arange(9) / 100, **{name: np.arange(9.0) for name in names}})
    parquet.write_table(table, tmp_path / "run.parquet")
    log = open_log(tmp_path / "run.parquet")
    assert log.format == "Parquet"
    assert np.array_equal(log.signal("imu").stack(), np.repeat(np.arange(9.0)[:, None], 6, 1))


def test_what_cannot_be_recognised_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"no column is the time \(a, b\)"):
        open_log(path)
    path.write_text("t,gyro_x [furlong],gyro_y,gyro_z\n1,2,3,4\n2,3,4,5\n")
    log = open_log(path)
    assert [source.role for source in log.sources()] == ["column"]
    assert list(log.signal("run").columns) == ["gyro_y", "gyro_z"]
    assert "'furlong'" in log.notes[0]
    with pytest.raises(DataError, match="no imu in this log"):
        log.signal("imu")
