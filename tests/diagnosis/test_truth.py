"""NEES against a reference: errors drawn from a known covariance, stated too small or too large by a known factor."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.cli.main import main
from fwnkf.diagnosis import Diagnosis, diagnose
from fwnkf.diagnosis.consistency import band
from fwnkf.diagnosis.result import Consistency
from fwnkf.diagnosis.truth import error_consistency, logged_errors, reference
from fwnkf.errors import DataError
from fwnkf.logs import open_log
from fwnkf.logs.results import result_file
from fwnkf.logs.ros_write import McapFile

RATE, COUNT = 50.0, 1500
START = 1_700_000_000_000_000_000
Q, R = 0.4, 0.05


def motion(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Positions of a vehicle that is driven by white acceleration along three axes, and measurements of them."""
    dt = 1 / RATE
    noise = np.linalg.cholesky([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    x, v = np.zeros(3), np.zeros(3)
    positions = []
    for step in rng.normal(size=(COUNT, 2, 3)):
        dx, dv = np.sqrt(Q) * noise @ step
        x, v = x + dt * v + dx, v + dv
        positions.append(x)
    true = np.array(positions)
    return true, true + np.sqrt(R) * rng.normal(size=true.shape)


def cv_filter(factor: float) -> fwnkf.Filter:
    """The filter of that motion with all covariances multiplied by a factor, which leaves its estimates as they are."""
    dt = 1 / RATE
    F = np.kron(np.eye(3), [[1, dt], [0, 1]])
    noise = np.kron(np.eye(3), [[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    H = np.kron(np.eye(3), [[1.0, 0.0]])
    names = [(f"{name}_{axis}", "euclidean", 1) for axis in "xyz" for name in ("position", "velocity")]
    measured = tuple(f"position_{axis}" for axis in "xyz")
    return fwnkf.build(
        "kf", F=torch.from_numpy(F), H=torch.from_numpy(H), Q=torch.from_numpy(factor * Q * noise),
        R=torch.from_numpy(factor * R * np.eye(3)), layout=names, channels=measured, dt=dt,
    )  # fmt: skip


def write_table(path: Path, columns: dict[str, np.ndarray]) -> Path:
    rows = np.stack(list(columns.values()), -1)
    text = [",".join(columns), *(",".join(map(repr, row)) for row in rows.tolist())]
    path.write_text("\n".join(text) + "\n")
    return path


def table_of(path: Path, true: np.ndarray, measured: np.ndarray, *, with_truth: bool = True) -> Path:
    columns = {"t [s]": np.arange(COUNT) / RATE}
    columns |= {f"position_{axis} [m]": measured[:, k] for k, axis in enumerate("xyz")}
    if with_truth:
        columns |= {f"truth_position_{axis} [m]": true[:, k] for k, axis in enumerate("xyz")}
    return write_table(path, columns)


def errors(result: Diagnosis) -> dict[str, Consistency]:
    return {row.name: row for row in result.consistency if row.kind == "NEES"}


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_a_filter_whose_covariance_is_wrong_by_a_factor_has_its_inverse_as_nees(tmp_path, rng, factor):
    true, measured = motion(rng)
    log = open_log(table_of(tmp_path / "run.csv", true, measured))
    result = diagnose(log, filter=cv_filter(factor))
    rows = errors(result)
    assert set(rows) == {f"position_{axis} error" for axis in "xyz"}
    for row in rows.values():
        assert abs(row.mean * factor - 1) < 1.75 * (row.high - row.low) / 2  # 95 % times 1.75 are 99.9 %
    causes = {0.2: "overconfident", 5.0: "underconfident"}
    found = [item for item in result.findings if "nees" in item.figures]
    assert [item.cause for item in found] == ([causes[factor]] if factor in causes else [])
    for item in found:
        assert float(item.figures["p_factor"]) == pytest.approx(1 / factor, rel=0.4)


def test_estimates_in_a_file_are_compared_with_a_truth_in_another(tmp_path, rng, capsys):
    """The estimates as ``fwnkf run`` writes them; NEES is the mean of the squares that were drawn."""
    true, _ = motion(rng)
    time, drawn = np.arange(COUNT) / RATE, 1.2 * rng.normal(size=true.shape)
    truth = write_table(
        tmp_path / "truth.csv", {"t [s]": time, **{f"position_{axis} [m]": true[:, k] for k, axis in enumerate("xyz")}}
    )
    file = result_file(tmp_path / "out.parquet", [("position", "euclidean", 3)], 0)
    file.write(time, true + np.array([0.1, 0.2, 0.3]) * drawn, np.tile(np.diag([0.01, 0.04, 0.09]), (COUNT, 1, 1)))
    file.close({})
    assert main(["diagnose", str(tmp_path / "out.parquet"), "--truth", str(truth), "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out)["consistency"] if row["kind"] == "NEES"]
    logged = {row["name"]: row["mean"] for row in rows[-3:]}
    expected = {f"position_{axis} error": value for axis, value in zip("xyz", (drawn**2).mean(0), strict=True)}
    assert logged == pytest.approx(expected, rel=1e-4)


def lasting(rng: np.random.Generator, count: int, keep: float) -> np.ndarray:
    """A first-order process of unit variance in each column."""
    values = rng.normal(size=(count, 3))
    for step in range(1, count):
        values[step] = keep * values[step - 1] + np.sqrt(1 - keep**2) * values[step]
    return values


@pytest.mark.parametrize("factor", [0.25, 1.0, 9.0])
def test_an_odometry_with_a_wrong_covariance_is_named(tmp_path, rng, factor):
    count, keep = 2500, 0.9
    true = np.cumsum(rng.normal(size=(count, 3)) * 0.02, 0)
    covariance = np.zeros((count, 36))
    covariance[:, [0, 7, 14]] = 0.09 * factor
    stamps = START + (np.arange(count) * 1e9 / RATE).astype(np.int64)
    turn = np.tile([0.0, 0.0, 0.0, 1.0], (count, 1))
    with McapFile(tmp_path / "drive.mcap") as file:
        odometry = np.concatenate([true + 0.3 * lasting(rng, count, keep), turn, covariance], 1)
        file.write("/odom", "geometry_msgs/msg/PoseWithCovarianceStamped", stamps, odometry)
        file.write("/vicon/pose", "geometry_msgs/msg/PoseStamped", stamps, np.concatenate([true, turn], 1))
    log = open_log(tmp_path / "drive.mcap")
    result = diagnose(log)
    rows = [row for row in result.consistency if row.kind == "NEES"]
    named = reference(log, "/vicon/pose")
    assert named is not None
    assert [row.mean for row in rows if "(" not in row.name][-3:] == [row.mean for row in logged_errors(log, named)]
    low, high = band(count * (1 - keep**2) / (1 + keep**2))  # squares of a first-order process have keep² as theirs
    for row in logged_errors(log, named):
        assert row.high - row.low == pytest.approx(high - low, rel=0.2)
        assert abs(row.mean * factor - 1) < 1.75 * (high - low) / 2
    found = [item.cause for item in result.findings if "nees" in item.figures]
    assert found == {0.25: ["overconfident"], 1.0: [], 9.0: ["underconfident"]}[factor]


def test_the_band_holds_the_mean_of_correlated_errors(rng):
    """In about 95 of 100 series, where a band for independent errors would hold it in fewer than half."""
    inside, naive = 0, 0
    low, high = band(3000)
    for _ in range(40):
        for values in lasting(rng, 3000, 0.95).T:
            (row,) = error_consistency("x", np.arange(3000.0), values**2, values)
            inside += row.low <= row.mean <= row.high
            naive += low <= row.mean <= high
    assert 105 <= inside <= 120
    assert naive < 60


def test_a_truth_that_is_nowhere_is_an_error(tmp_path, rng):
    log = open_log(table_of(tmp_path / "run.csv", *motion(rng)))
    with pytest.raises(DataError, match="neither a file nor a topic"):
        reference(log, "/vicon")
