"""The ROS 2 package of a filter, compiled against stub headers: its node against the filter in PyTorch."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.core import rotation
from fwnkf.errors import ConfigError
from fwnkf.export.ros2 import export_ros2, wire
from fwnkf.systems import Strapdown, StrapdownConfig

from ..conformance.cases import CASES

pytestmark = [
    pytest.mark.export,
    pytest.mark.skipif(shutil.which("g++") is None or shutil.which("gcc") is None, reason="no gcc and g++ here"),
]
STUBS = Path(__file__).parent / "ros2_stubs"
STRICT = ("-Wall", "-Wextra", "-Werror")
PERIOD = 10_000_000
"""Nanoseconds between IMU messages."""


def inertial(observed: str) -> fwnkf.Filter:
    return fwnkf.EKF(Strapdown(StrapdownConfig(observed=observed, biases=False))).double()  # type: ignore[arg-type]


def build(model: fwnkf.Filter, folder: Path, **options: tuple[str, ...]) -> Path:
    """The node with the driver of the tests."""
    export_ros2(model, folder, "inertial", "double", steps=0, **options)
    program = folder / "drive"
    header, node = '-DNODE_HEADER="inertial_node/node.hpp"', "-DNODE=inertial_node::Node"
    include = ["-I", str(folder / "include"), "-I", str(folder / "filter"), "-I", str(STUBS)]
    for call in (
        ["gcc", "-std=c99", *STRICT, "-c", str(folder / "filter/inertial.c"), "-o", str(folder / "inertial.o")],
        ["g++", "-std=c++17", *STRICT, *include, header, node, str(STUBS / "drive.cpp"), str(folder / "inertial.o"),
         "-o", str(program)],
        ["g++", "-std=c++17", *STRICT, *include, "-fsyntax-only", str(folder / "src/main.cpp")],
    ):  # fmt: skip
        done = subprocess.run(call, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    return program


def drive(program: Path, lines: list[str]) -> tuple[np.ndarray, str]:
    done = subprocess.run([str(program)], input="\n".join(lines), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.array([[float(item) for item in line.split()] for line in done.stdout.splitlines()]), done.stderr


def message(kind: str, stamp: int, *numbers: float) -> str:
    return " ".join([kind, str(stamp), *(repr(float(number)) for number in numbers)])


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(inertial("pose"), tmp_path_factory.mktemp("node"))


def test_the_node_filters_as_the_filter_does(program: Path):
    """IMU at 100 Hz, odometry at 10 Hz with roll, pitch and yaw, covariance in the axes of the world."""
    model = inertial("pose")
    random = np.random.default_rng(0)
    state, start = model.init(1), 1_700_000_000_000_000_000
    last = None
    lines, expected = [], []
    for k in range(60):
        stamp = start + k * PERIOD + int(random.integers(0, PERIOD // 2))
        u = np.concatenate((0.3 * random.standard_normal(3), np.array([0.1, -0.2, 9.8]) + random.standard_normal(3)))
        y, mask = torch.zeros(1, 6, dtype=torch.float64), torch.zeros(1, 6, dtype=torch.bool)
        if k % 10 == 3:
            angles = np.array([0.2, -0.3, 0.5]) + 0.05 * random.standard_normal(3)
            place = np.array([1.0, 2.0, 3.0]) + 0.1 * random.standard_normal(3)
            halves = [rotation.exp(torch.eye(3, dtype=torch.float64)[i] * angles[i]) for i in range(3)]
            q = rotation.multiply(halves[2], rotation.multiply(halves[1], halves[0]))  # yaw, pitch, roll
            lines.append(message("odometry", stamp - 1000, *place, *q.tolist(), *[0.0] * 6))
            y, mask = torch.from_numpy(np.concatenate((place, angles)))[None], torch.ones(1, 6, dtype=torch.bool)
        lines.append(message("imu", stamp, *u))
        dt = model.nominal_step if last is None else 1e-9 * (stamp - last)
        last = stamp
        state, out = model.step(state, y, torch.from_numpy(u)[None], mask, torch.tensor([dt], dtype=torch.float64))
        expected.append(np.concatenate((out.mean[0, :3], out.mean[0, 6:10], _world(out.mean[0], out.cov[0]).flatten())))
    found, _ = drive(program, lines)
    assert found.shape == (60, 44)
    np.testing.assert_allclose(found[:, 1:], np.stack(expected), rtol=1e-6, atol=1e-7)


def _world(mean: torch.Tensor, cov: torch.Tensor) -> np.ndarray:
    """Covariance of position and of rotations about the axes of the world: ``q ⊞ δ = (R δ) ⊞ q``."""
    turn = torch.block_diag(torch.eye(3, dtype=torch.float64), rotation.to_matrix(mean[6:10]))
    places = [0, 1, 2, 6, 7, 8]
    return (turn @ cov[places][:, places] @ turn.mT).numpy()


def test_old_messages_are_dropped_and_a_gap_starts_anew(program: Path):
    level = (0.0, 0.0, 0.0, 0.0, 0.0, 9.81)
    lines = [message("imu", k * PERIOD, *level) for k in (1, 2, 2, 1, 3)]
    found, warned = drive(program, lines)
    assert len(found) == 3
    assert "1 messages were older" in warned
    again, _ = drive(program, [*lines, message("imu", 10**10, *level)])
    np.testing.assert_array_equal(again[3, 1:], found[0, 1:])  # the step after the gap is a first one


def test_a_filter_without_imu_signals_steps_with_odometry(tmp_path: Path):
    eye = torch.eye(3, dtype=torch.float64)
    kf = fwnkf.KF(
        F=eye, H=eye, Q=0.1 * eye, R=eye, layout=(("position", "euclidean", 3),),
        channels=("position_x", "position_y", "position_z"),
    )  # fmt: skip
    names = tuple(f"velocity_{axis}" for axis in "xyz")
    program = build(kf, tmp_path, channels=names)
    quarter = (np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5))  # a quarter turn about z: forward is y of the world
    lines = [message("odometry", k * PERIOD, 9, 9, 9, *quarter, 1.0, 0, 0, 0, 0, 0) for k in range(1, 4)]
    found, _ = drive(program, [message("imu", 1, *[0.0] * 6), *lines])
    y = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64).expand(1, 3, 3)
    track = kf.run(y)
    np.testing.assert_allclose(found[:, 1:4], track.mean[0].numpy(), atol=1e-12)
    np.testing.assert_allclose(found[:, 8:].reshape(3, 6, 6)[:, :3, :3], track.cov[0].numpy(), atol=1e-12)
    assert (found[:, 8:].reshape(3, 6, 6)[:, 5, 5] == 1e9).all()  # nothing is known of the orientation


def test_the_package_names_what_it_needs(program: Path):
    folder = program.parent
    package = ElementTree.parse(folder / "package.xml").getroot()
    assert package.findtext("name") == "inertial_node"
    assert {item.text for item in package.findall("depend")} == {"rclcpp", "geometry_msgs", "nav_msgs", "sensor_msgs"}
    for path in (item for item in folder.rglob("*.*") if item.suffix != ".o"):
        assert "@" not in path.read_text().replace("you@example.com", ""), path
    compile((folder / "launch/inertial.launch.py").read_text(), "launch", "exec")


def test_signals_and_poses_are_checked(tmp_path: Path):
    with pytest.raises(ConfigError, match="first, second unknown; name a signal for each of the 2 channels"):
        wire(CASES["kf"].build(torch.float32))
    model = inertial("position")
    with pytest.raises(ConfigError, match="2 named; name a signal for each of the 6 controls"):
        wire(model, controls=("gyro_x", "gyro_y"))
    with pytest.raises(ConfigError, match="a pose needs a part 'position'"):
        export_ros2(CASES["kf"].build(torch.float32), tmp_path, channels=("gyro_x", "gyro_y"), controls=("accel_x",))
