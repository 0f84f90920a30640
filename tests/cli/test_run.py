"""``fwnkf run`` from a log to files that other programs read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.cli import main
from fwnkf.core import rotation
from fwnkf.core.system import build_system
from fwnkf.logs import open_log, read_table
from fwnkf.logs.results import McapResult, rotation_matrices
from fwnkf.logs.ros_write import McapFile
from fwnkf.runtime import recordings

START = 1_700_000_000_123_456_789
CHANNELS = tuple(f"{name}_{axis}" for name in ("gyro", "accel") for axis in "xyz")

pytest.importorskip("mcap")
pytest.importorskip("rosbags")


def write_log(path: Path, count: int = 300) -> np.ndarray:
    """An IMU at 100 Hz in an MCAP file; returns its six channels."""
    values = np.random.default_rng(0).normal(size=(count, 6)) + np.array([0, 0, 0, 0, 0, 9.81])
    numbers = np.zeros((count, 37))
    numbers[:, 13:16], numbers[:, 25:28] = values[:, :3], values[:, 3:]
    with McapFile(path) as file:
        file.write("/imu", "sensor_msgs/msg/Imu", START + 10_000_000 * np.arange(count), numbers)
    return values


def save_imu_filter(folder: Path) -> fwnkf.Filter:
    layout = tuple((name, "euclidean", 1) for name in CHANNELS)
    kf = fwnkf.KF(
        F=torch.zeros(6, 6), H=torch.eye(6), Q=torch.eye(6), R=torch.eye(6), continuous=True, dt=0.01,
        layout=layout, channels=CHANNELS,
    ).double()  # fmt: skip
    fwnkf.save(kf, folder)
    return kf


def run(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> Any:
    assert main(["run", *map(str, arguments), "--json"]) == code
    captured = capsys.readouterr()
    return json.loads(captured.out) if code == 0 else captured.err


def test_estimates_as_parquet_are_those_of_the_filter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = write_log(tmp_path / "run.mcap")
    kf = save_imu_filter(tmp_path / "filter")
    out = tmp_path / "out.parquet"
    printed = run(capsys, tmp_path / "run.mcap", "--filter", tmp_path / "filter", "-o", out, "--covariance")
    assert printed["samples"] == 300
    assert printed["flagged_steps"] == 0
    track = kf.run(torch.from_numpy(values)[None])
    table = read_table(out)
    assert np.array_equal(np.stack([table.column(name) for name in CHANNELS], -1), track.mean[0].numpy())
    deviations = track.cov[0].diagonal(dim1=-2, dim2=-1).sqrt().numpy()
    assert np.array_equal(np.stack([table.column(f"{name}_std") for name in CHANNELS], -1), deviations)
    assert np.array_equal(table.column("gyro_x*gyro_y"), track.cov[0, :, 0, 1].numpy())
    assert np.allclose(table.column("time"), 0.01 * np.arange(300))
    metadata = pytest.importorskip("pyarrow.parquet").read_metadata(out).metadata
    assert metadata[b"fwnkf.complete"] == b"yes"
    assert read_parquet_stamps(out)[1] == START + 10_000_000


def read_parquet_stamps(path: Path) -> list[int]:
    return pytest.importorskip("pyarrow.parquet").read_table(path).column("stamp_ns").to_pylist()


def test_estimates_as_mcap_open_with_other_readers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = write_log(tmp_path / "run.mcap")
    kf = save_imu_filter(tmp_path / "filter")
    out = tmp_path / "out.mcap"
    run(capsys, tmp_path / "run.mcap", "--filter", tmp_path / "filter", "-o", out, "--smooth")
    expected = fwnkf.smooth(kf, kf.run(torch.from_numpy(values)[None], smoothing=True))
    assert np.allclose(open_log(out).signal("imu").stack(CHANNELS), expected.mean[0].numpy(), atol=1e-9)
    messages = messages_by_rosbags(out)["/fwnkf/imu"]
    assert len(messages) == 300
    assert messages[7].angular_velocity.y == pytest.approx(float(expected.mean[0, 7, 1]), abs=1e-9)
    assert messages[7].linear_acceleration_covariance[8] == pytest.approx(float(expected.cov[0, 7, 5, 5]), abs=1e-9)
    assert messages[7].orientation_covariance[0] == -1
    assert messages[7].header.stamp.nanosec == 193_456_789
    reader = pytest.importorskip("mcap.reader")
    with out.open("rb") as file:
        states = [json.loads(m.data) for _, _, m in reader.make_reader(file).iter_messages(topics=["/fwnkf/state"])]
    assert states[7]["gyro_y"] == pytest.approx(float(expected.mean[0, 7, 1]), abs=1e-9)
    assert states[7]["timestamp"] == {"sec": 1_700_000_000, "nsec": 193_456_789}


def messages_by_rosbags(path: Path) -> dict[str, list[Any]]:
    """Messages of an MCAP file as the rosbags package decodes them."""
    typesys, reader = pytest.importorskip("rosbags.typesys"), pytest.importorskip("mcap.reader")
    store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    messages: dict[str, list[Any]] = {}
    with path.open("rb") as file:
        for schema, channel, message in reader.make_reader(file).iter_messages():
            if channel.message_encoding == "cdr":
                decoded = store.deserialize_cdr(message.data, schema.name)
                messages.setdefault(channel.topic, []).append(decoded)
    return messages


def test_pose_with_covariance_is_about_fixed_axes(tmp_path: Path) -> None:
    """ROS has rotations about fixed axes, states here about body axes: turned by the orientation."""
    random = np.random.default_rng(1)
    q = random.normal(size=(5, 4))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    root = random.normal(size=(5, 6, 6))
    cov = root @ root.swapaxes(1, 2)
    mean = np.concatenate([random.normal(size=(5, 3)), q], 1)
    file = McapResult(tmp_path / "pose.mcap", [("position", "euclidean", 3), ("q", "quaternion", 4)], START)
    file.write(np.arange(5.0), mean, cov)
    file.close({"complete": "yes"})
    poses = messages_by_rosbags(tmp_path / "pose.mcap")["/fwnkf/pose"]
    for row, message in enumerate(poses):
        assert message.pose.pose.orientation.w == q[row, 0]
        w, x, y, z = q[row]
        turn = rotation.to_matrix(torch.tensor([w, x, y, z])).numpy()
        assert np.allclose(rotation_matrices(q[row : row + 1, [1, 2, 3, 0]])[0], turn)
        both = np.block([[np.eye(3), np.zeros((3, 3))], [np.zeros((3, 3)), turn]])
        assert np.allclose(message.pose.covariance.reshape(6, 6), both @ cov[row] @ both.T)


def test_tum_trajectory_opens_in_evo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file_interface = pytest.importorskip("evo.tools.file_interface")
    count = 400  # a circle of 1 m at 1 rad/s: an IMU at 100 Hz, positions at 20 Hz
    time = np.arange(count) / 100
    imu, pose = np.zeros((count, 37)), np.zeros((count // 5, 7))
    imu[:, 15], imu[:, 26], imu[:, 27] = 1.0, 1.0, 9.81
    pose[:, 0], pose[:, 1], pose[:, 6] = np.sin(time[::5]), 1 - np.cos(time[::5]), 1.0
    stamps = START + 10_000_000 * np.arange(count)
    with McapFile(tmp_path / "run.mcap") as file:
        file.write("/imu", "sensor_msgs/msg/Imu", stamps, imu)
        file.write("/pose", "geometry_msgs/msg/PoseStamped", stamps[::5], pose)
    system = build_system("strapdown", {"biases": False, "dt": 0.01})
    fwnkf.save(fwnkf.EKF(system.double()), tmp_path / "filter")
    out = tmp_path / "out.tum"
    controls = ",".join(CHANNELS)
    run(capsys, tmp_path / "run.mcap", "--filter", tmp_path / "filter", "-o", out, "--controls", controls)
    trajectory = file_interface.read_tum_trajectory_file(str(out))
    assert trajectory.num_poses == count
    assert trajectory.check()[0]
    assert np.allclose(trajectory.positions_xyz[200:, 0], np.sin(time)[200:], atol=0.02)
    assert trajectory.timestamps[1] == pytest.approx(stamps[1] / 1e9, abs=1e-6)
    assert "# complete: yes" in out.read_text()


def test_an_interrupted_run_leaves_a_file_that_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "run.mcap", count=5000)
    save_imu_filter(tmp_path / "filter")
    rows = 0
    original = recordings._Runner.put

    def put(self: Any, *arguments: Any) -> None:
        nonlocal rows
        original(self, *arguments)
        rows += 1
        if rows == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(recordings._Runner, "put", put)
    out = tmp_path / "out.parquet"
    error = run(capsys, tmp_path / "run.mcap", "--filter", tmp_path / "filter", "-o", out, code=130)
    assert "not complete: 2,048 samples, up to 20.470 s" in error
    assert len(read_table(out)) == 2048
    metadata = pytest.importorskip("pyarrow.parquet").read_metadata(out).metadata
    assert metadata[b"fwnkf.complete"].startswith(b"no: it ends at 20.470 s")


def test_what_does_not_fit_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "run.mcap")
    folder = tmp_path / "filter"
    save_imu_filter(folder)
    start = (tmp_path / "run.mcap", "--filter", folder, "-o")
    assert "suffix" in run(capsys, *start, tmp_path / "out.xyz", code=2)
    before = (tmp_path / "run.mcap").read_bytes()
    (tmp_path / "link").symlink_to(tmp_path)
    assert "log itself" in run(capsys, *start, tmp_path / "run.mcap", code=2)
    assert "log itself" in run(capsys, *start, tmp_path / "link" / "run.mcap", code=2)
    assert "a part of it" in run(capsys, tmp_path, "--filter", folder, "-o", tmp_path / "run.mcap", code=2)
    assert (tmp_path / "run.mcap").read_bytes() == before
    assert "--lag" in run(capsys, *start, tmp_path / "out.parquet", "--lag", 3, code=2)
    assert "needs a position" in run(capsys, *start, tmp_path / "out.tum", code=1)
    assert "wind_x" in run(
        capsys, *start, tmp_path / "out.parquet", "--channels", "wind_x,gyro_y,gyro_z,accel_x,accel_y,accel_z", code=1
    )
    assert "6 channels" in run(capsys, *start, tmp_path / "out.parquet", "--channels", "gyro_x", code=2)
    one = torch.eye(1)
    fwnkf.save(fwnkf.KF(F=one, H=one, Q=one, R=one, dt=0.01).double(), tmp_path / "other")
    error = run(capsys, tmp_path / "run.mcap", "--filter", tmp_path / "other", "-o", tmp_path / "a.parquet", code=2)
    assert "are called y" in error
    printed = run(
        capsys, tmp_path / "run.mcap", "--filter", tmp_path / "other", "-o", tmp_path / "a.parquet",
        "--channels", "gyro_x", "--field", "gyro_x=/imu.angular_velocity.x*2",
    )  # fmt: skip
    assert printed["samples"] == 300
    assert math.isfinite(printed["nis"])


def test_lost_precision_is_a_warning_and_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six sensors of one number with a tiny noise: in float32 their innovations are the same up to rounding."""
    write_log(tmp_path / "run.mcap")
    kf = fwnkf.KF(
        F=torch.zeros(1, 1), H=torch.ones(6, 1), Q=torch.eye(1), R=2e-6 * torch.eye(6), continuous=True, dt=0.01,
        layout=(("x", "euclidean", 1),), channels=CHANNELS,
    )  # fmt: skip
    fwnkf.save(kf, tmp_path / "filter")
    arguments = (tmp_path / "run.mcap", "--filter", tmp_path / "filter", "-o", tmp_path / "out.parquet")
    printed = run(capsys, *arguments)
    assert printed["flagged_steps"] == 0
    assert printed["imprecise_steps"] > 0
    assert main(["run", *map(str, arguments)]) == 0
    assert "rounding may have changed the estimate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "code"), [({1000: 1.7e9}, 0), ({1000: 1.7e9, 2000: 5e5}, 0), (dict.fromkeys(range(1500, 1600), 0.0), 1)]
)
def test_one_wrong_stamp_of_a_table_costs_one_sample(wrong, code, tmp_path, capsys) -> None:
    """And where many samples are lost, the exit code says so."""
    save_imu_filter(tmp_path / "filter")
    values = np.random.default_rng(1).normal(size=(3000, 6))
    rows = [[wrong.get(k, 0.01 * k), *row] for k, row in enumerate(values.tolist())]
    text = "\n".join(",".join(map(repr, row)) for row in rows)
    (tmp_path / "log.csv").write_text(",".join(["t [s]", *CHANNELS]) + "\n" + text + "\n")
    words = [
        "run",
        str(tmp_path / "log.csv"),
        "--filter",
        str(tmp_path / "filter"),
        "-o",
        str(tmp_path / "out.parquet"),
    ]
    assert main([*words, "--json"]) == code
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["samples"] == 3000 - len(wrong)
    assert any(f"{len(wrong)} of 3,000 samples were left out" in note for note in report["notes"])
    assert ("100 of 3,000 samples were lost" in captured.err) == (code == 1)
