"""Each reader on a small file in the official format: every value is read, and errors name the place."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.io
import torch

from fwnkf.core import rotation
from fwnkf.data.sets import broad, dido, euroc, uipdb
from fwnkf.errors import DataError

from ..tolerances import assert_close, assert_same_bits
from . import miniatures


def same_rotations(actual: torch.Tensor, expected: np.ndarray) -> None:
    """Equal as rotations to the nine decimals of the files; the distance of quaternions near each other."""
    expected = torch.from_numpy(expected)
    apart = torch.minimum((actual - expected).abs().amax(), (actual + expected).abs().amax())
    assert float(apart) < 2e-9
    assert bool(((actual[1:] * actual[:-1]).sum(-1) > 0).all())


# -- EuRoC ------------------------------------------------------------------------------------------------------------


def test_euroc_is_read(tmp_path):
    flown = miniatures.euroc(tmp_path / "V9_01_easy")
    recording = euroc.read(tmp_path / "V9_01_easy")
    assert recording.name == "V9_01_easy"
    assert len(recording) == 100
    assert recording.layout == euroc.LAYOUT
    assert recording.epoch_ns == miniatures.EPOCH_NS + 10 * 5_000_000
    kept = slice(10, 110)
    assert_same_bits(recording.observations, torch.from_numpy(np.concatenate((flown.gyro, flown.accel), -1)[kept]))
    assert_close(recording.time, torch.from_numpy(flown.time[kept] - flown.time[10]), "rounding")
    assert recording.truth is not None
    expected = np.concatenate((flown.position, flown.velocity), -1)[kept]
    assert float((recording.truth[:, :6] - torch.from_numpy(expected)).abs().max()) < 1e-9
    same_rotations(recording.truth[:, 6:], flown.quaternion[kept])
    assert "3 sign flip(s)" in " ".join(recording.notes)
    assert_close(recording.extras["gyro_bias"][5], torch.tensor([0.001, 0.002, 0.003], dtype=torch.float64), "rounding")
    assert not bool(recording.extras["jump"].any())
    assert euroc.read(tmp_path / "V9_01_easy" / "mav0").name == "V9_01_easy"
    assert list(euroc.find(tmp_path)) == ["V9_01_easy"]


def test_euroc_truth_between_stamps_is_interpolated_on_the_sphere(tmp_path):
    flown = miniatures.euroc(tmp_path / "s", shift_ns=1_700_000)
    recording = euroc.read(tmp_path / "s")
    assert len(recording) == 99
    assert recording.truth is not None
    expected = torch.from_numpy(flown.quaternion[11:110])
    # a straight line between quaternions five milliseconds apart errs by the curvature of the attitude: angle² / 8
    assert float(rotation.distance(recording.truth[:, 6:], expected).max()) < 1e-5
    assert float((recording.truth[:, :3] - torch.from_numpy(flown.position[11:110])).abs().max()) < 1e-5
    assert_close(recording.truth[:, 6:].norm(dim=-1), torch.ones(99, dtype=torch.float64), "rounding")


def test_euroc_without_trimming_truth_or_biases(tmp_path):
    miniatures.euroc(tmp_path / "s", biases=False)
    whole = euroc.read(tmp_path / "s", trim=False)
    assert whole.truth is not None
    assert whole.truth_mask is not None
    assert whole.truth_mask.nonzero()[:, 0].tolist() == list(range(10, 110))
    assert bool(whole.truth[:10].isnan().all())
    assert bool(whole.extras["accel_bias"].isnan().all())
    assert "the ground truth has no biases" in whole.notes
    bare = euroc.read(tmp_path / "s", "none")
    assert bare.truth is None
    assert len(bare) == 120
    (tmp_path / "s/mav0/state_groundtruth_estimate0/data.csv").unlink()
    with pytest.raises(DataError, match="truth='none'"):
        euroc.read(tmp_path / "s")


def test_euroc_jumps_are_flagged_and_masked_on_request(tmp_path):
    miniatures.euroc(tmp_path / "s", jump=40)
    recording = euroc.read(tmp_path / "s")
    assert recording.extras["jump"].nonzero()[:, 0].tolist() == [40]
    assert any("position jump of 5.0 cm at 0.200 s" in note and "threshold 2 m/s" in note for note in recording.notes)
    assert recording.truth_mask is not None
    assert bool(recording.truth_mask.all())
    masked = euroc.read(tmp_path / "s", mask_jumps=0.0101)
    assert masked.truth_mask is not None
    assert (~masked.truth_mask).nonzero()[:, 0].tolist() == [38, 39, 40, 41, 42]


def test_euroc_corrected_pose_is_read_from_next_to_the_folder(tmp_path):
    miniatures.euroc(tmp_path / "s")
    with pytest.raises(DataError, match="OpenVINS"):
        euroc.read(tmp_path / "s", "corrected")
    lines = (tmp_path / "s/mav0/state_groundtruth_estimate0/data.csv").read_text().splitlines()
    header = "#time(ns),px,py,pz,qw,qx,qy,qz,vx,vy,vz,bwx,bwy,bwz,bax,bay,baz"
    corrected = tmp_path / "s" / "openvins" / "s_corrected_20hz.csv"
    corrected.parent.mkdir()
    corrected.write_text("\n".join([header, *lines[1::10]]) + "\n")
    coarse, official = euroc.read(tmp_path / "s", "corrected"), euroc.read(tmp_path / "s")
    assert len(coarse) == 91
    assert any("20 Hz" in note for note in coarse.notes)
    assert coarse.truth is not None
    assert official.truth is not None
    # between rows 50 ms apart a circle of 1.2 m/s² bends by a dt² / 8
    assert float((coarse.truth[:, :3] - official.truth[:91, :3]).abs().max()) < 1e-3
    assert_same_bits(euroc.read(tmp_path / "s", corrected).observations, coarse.observations)


def edit(path, change):
    lines = path.read_bytes().decode().replace("\r\n", "\n").splitlines()
    path.write_text("\n".join(change(lines)) + "\n")


def scale(columns: slice, factor: float):
    def change(lines):
        out = [lines[0]]
        for line in lines[1:]:
            cells = line.split(",")
            cells[columns] = [repr(float(cell) * factor) for cell in cells[columns]]
            out.append(",".join(cells))
        return out

    return change


def cell(row: int, column: int, text: str):
    def change(lines):
        cells = lines[row].split(",")
        cells[column] = text
        return [*lines[:row], ",".join(cells), *lines[row + 1 :]]

    return change


IMU, TRUTH = "imu0", "state_groundtruth_estimate0"


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        (IMU, lambda lines: lines[:1], "0 row.s. of data"),
        (IMU, lambda lines: [], "empty"),
        (IMU, lambda lines: [*lines[:40], lines[40][:30]], "line 41: 2 columns, expected 7"),
        (IMU, lambda lines: [*lines[:40], lines[39], *lines[40:]], "line 41: the time stamp is not later"),
        (IMU, cell(7, 3, "seven"), r"line 8 \(w_RS_S_z\): 'seven' is not a number"),
        (IMU, cell(7, 0, "1e999"), "line 8, column 1 .timestamp.: '1e999' is not a time"),
        (IMU, cell(60, 2, "1e30"), r"line 61, column 3 \(w_RS_S_y\): 1e\+30 rad/s exceeds"),
        (IMU, cell(60, 6, "-1e9"), r"line 61, column 7 \(a_RS_S_z\): -1e\+09 m/s²"),
        (IMU, scale(slice(1, 4), 57.29578), "the unit may be degrees"),
        (IMU, scale(slice(4, 7), 1 / 9.80665), "the unit may be g"),
        (IMU, scale(slice(0, 1), 1e-9), "is not later"),
        (IMU, cell(0, 1, "w_RS_S_x [deg s^-1]"), r"column 2 \(w_RS_S_x\): the unit is 'deg s\^-1'"),
        (IMU, cell(0, 1, "a_RS_S_x [m s^-2]"), "the name is 'a_RS_S_x"),
        (IMU, lambda lines: [lines[0] + ",more", *lines[1:]], "header has 8 columns, expected 7"),
        (IMU, lambda lines: [lines[0], *[",".join([x.split(",")[0], *["nan"] * 6]) for x in lines[1:]]], "gravity"),
        (TRUTH, scale(slice(1, 4), 1000.0), "check their units"),
        (TRUTH, cell(9, 1, "1e12"), r"column 2 \(p_RS_R_x\): 1e\+12 m exceeds"),
        (TRUTH, cell(9, 8, "1e12"), r"column 9 \(v_RS_R_x\)"),
        (TRUTH, cell(9, 4, "2.5"), "line 10.*the norm of the quaternion"),
        (TRUTH, lambda lines: [lines[0], *[x.replace("14036365", "15036365", 1) for x in lines[1:]]], "do not overlap"),
    ],
)
def test_euroc_errors_name_the_place(tmp_path, table, change, message):
    miniatures.euroc(tmp_path / "s")
    edit(tmp_path / "s" / "mav0" / table / "data.csv", change)
    with pytest.raises(DataError, match=message) as caught:
        euroc.read(tmp_path / "s")
    assert "data.csv" in str(caught.value)


def test_missing_values_are_masked_and_noted(tmp_path):
    miniatures.euroc(tmp_path / "s")
    edit(tmp_path / "s" / "mav0" / IMU / "data.csv", cell(30, 2, "nan"))
    edit(tmp_path / "s" / "mav0" / TRUTH / "data.csv", cell(60, 5, " nan"))
    recording = euroc.read(tmp_path / "s")
    assert (~recording.mask).nonzero().tolist() == [[19, 1]]
    assert recording.truth_mask is not None
    assert (~recording.truth_mask).nonzero()[:, 0].tolist() == [59]
    assert any("1 value(s) of the IMU" in note and "0.095 s" in note for note in recording.notes)
    assert any("1 row(s) of ground truth" in note for note in recording.notes)


def test_a_file_that_is_not_a_table(tmp_path):
    miniatures.euroc(tmp_path / "s")
    path = tmp_path / "s" / "mav0" / IMU / "data.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="byte 0: not UTF-8 text"):
        euroc.read(tmp_path / "s")
    path.unlink()
    with pytest.raises(DataError, match="does not exist"):
        euroc.read(tmp_path / "s")
    with path.open("wb") as file:
        file.truncate((1 << 28) + 1)
    with pytest.raises(DataError, match="larger than"):
        euroc.read(tmp_path / "s")


# -- DIDO -------------------------------------------------------------------------------------------------------------


def test_dido_is_read(tmp_path):
    flown = miniatures.dido(tmp_path / "circle(0)")
    recording = dido.read(tmp_path / "circle(0)")
    assert recording.name == "circle(0)"
    assert len(recording) == 120
    assert [channel.name for channel in recording.channels[:4]] == ["gyro_x", "gyro_y", "gyro_z", "accel_x"]
    expected = np.concatenate((flown.gyro, flown.accel), -1)
    assert float((recording.observations - torch.from_numpy(expected)).abs().max()) < 1e-9
    assert_close(recording.time, torch.from_numpy(flown.time), "rounding")
    assert recording.truth is not None
    assert float((recording.truth[:, :3] - torch.from_numpy(flown.position)).abs().max()) < 1e-9
    same_rotations(recording.truth[:, 3:], flown.quaternion)
    assert recording.truth_mask is not None
    assert bool(recording.truth_mask.all())  # the last stamp of the IMU is a microsecond after the last pose
    assert list(dido.find(tmp_path)) == ["circle(0)"]


def test_dido_beyond_the_poses(tmp_path):
    miniatures.dido(tmp_path / "s", lead=5)
    assert len(dido.read(tmp_path / "s")) == 110
    whole = dido.read(tmp_path / "s", trim=False)
    assert whole.truth_mask is not None
    assert int(whole.truth_mask.sum()) == 110


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("imu_data.csv", scale(slice(4, 7), 57.29578), "the unit may be degrees"),
        ("imu_data.csv", scale(slice(1, 4), 0.101972), "the unit may be g"),
        ("imu_data.csv", cell(0, 1, "gyro_x"), "column 2: the name is 'gyro_x', expected 'accel_x'"),
        ("imu_data.csv", scale(slice(0, 1), 1e6), "out of range|median step|do not overlap|is not later"),
        ("groundTruthPoses.csv", lambda lines: [x.replace("1645", "1745", 1) for x in lines], "do not overlap"),
        ("groundTruthPoses.csv", lambda lines: [x + ",0" for x in lines], "line 1: 9 columns, expected 8"),
        ("groundTruthPoses.csv", cell(3, 6, "inf0"), r"line 4 \(q_y\): 'inf0' is not a number"),
    ],
)
def test_dido_errors_name_the_place(tmp_path, table, change, message):
    miniatures.dido(tmp_path / "s")
    edit(tmp_path / "s" / table, change)
    with pytest.raises(DataError, match=message):
        dido.read(tmp_path / "s")


# -- BROAD ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [True, False])
def test_broad_is_read(tmp_path, compressed):
    path = tmp_path / "24_mini.mat"
    moved = miniatures.broad(path, compressed=compressed)
    recording = broad.read(path)
    assert recording.name == "24_mini"
    assert_same_bits(recording.observations[:, :6], torch.from_numpy(np.concatenate((moved.gyro, moved.accel), -1)))
    assert_close(torch.tensor(recording.rate), torch.tensor(285.7142857142857), "rounding")
    assert recording.truth is not None
    assert recording.truth_mask is not None
    assert (~recording.truth_mask).nonzero()[:, 0].tolist() == list(range(20, 27))
    assert bool(recording.truth[20:27].isnan().all())
    same_rotations(recording.truth[27:], moved.quaternion[27:])
    same_rotations(recording.truth[:20], moved.quaternion[:20])
    assert float((recording.truth[19] * recording.truth[27]).sum()) > 0
    assert recording.extras["movement"].tolist() == [False] * 31 + [True] * 89
    assert any("7 of 120 samples (5.8%)" in note for note in recording.notes)
    assert list(broad.find(tmp_path)) == ["24_mini"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"imu_gyr": None}, "no numeric variable 'imu_gyr'"),
        ({"imu_gyr": lambda x: np.rad2deg(x)}, "degrees"),
        ({"imu_acc": lambda x: x / 9.81}, "the unit may be g"),
        ({"imu_mag": lambda x: x / 100}, "gauss"),
        ({"imu_mag": lambda x: x * 1e-6}, "tesla"),
        ({"opt_quat": lambda x: x[:-1]}, "different lengths"),
        ({"opt_quat": lambda x: x[:, :3]}, "expected .N, 4."),
        ({"opt_quat": lambda x: x * 3}, "row 1, column 1: the norm of the quaternion is 3"),
        ({"opt_quat": lambda x: x * np.nan}, "fewer than two finite rows"),
        ({"imu_acc": lambda x: x * np.nan}, "gravity"),
        ({"imu_gyr": lambda x: x * np.where(np.arange(len(x)) % 3, np.nan, 1.0)[:, None]}, None),
        ({"imu_gyr": lambda x: x + np.where(np.arange(len(x)) == 4, 1e20, 0.0)[:, None]}, "imu_gyr, row 5, column 1"),
        ({"sampling_rate": lambda x: x * 0}, "sampling_rate"),
        ({"movement": lambda x: x + 3}, "movement"),
        ({"imu_gyr": lambda x: x.astype(complex)}, "no numeric variable 'imu_gyr'"),
    ],
)
def test_broad_errors_name_the_place(tmp_path, changes, message):
    path = tmp_path / "01_mini.mat"
    miniatures.broad(path)
    content = {name: value for name, value in scipy.io.loadmat(path).items() if not name.startswith("_")}
    for name, change in changes.items():
        if change is None:
            del content[name]
        else:
            content[name] = change(content[name])
    scipy.io.savemat(path, content)
    if message is None:
        assert any("80" in note or "240" in note for note in broad.read(path).notes)
        return
    with pytest.raises(DataError, match=message):
        broad.read(path)


# -- UIP-DB -----------------------------------------------------------------------------------------------------------


def test_a_session_is_read(tmp_path):
    path = tmp_path / "processed_04_session1_1.npz"
    arrays = miniatures.session(path)
    (recording,) = uipdb.read(path)
    assert recording.name == "04_session1_1"
    assert recording.truth is None
    assert len(recording.channels) == 21
    assert recording.channels[6].name == "range_left_wrist_right_wrist"
    assert recording.channels[20].name == "range_head_root"
    expected = np.concatenate((arrays["acc"].reshape(90, 6), arrays["uwb15"]), -1).astype(np.float64)
    assert_same_bits(recording.observations, torch.from_numpy(expected))
    fresh = torch.arange(90) % 3 == 0
    assert torch.equal(recording.mask[:, 6:], fresh[:, None].expand(90, 15))
    assert bool(recording.mask[:, :6].all())
    q = recording.extras["orientation"]
    assert bool(((q[1:] * q[:-1]).sum(-1) > 0).all())
    assert_close(q[:, 0, 0].abs().float(), torch.from_numpy(np.abs(arrays["quat_xyzw"][:, 0, 3])), "rounding")
    (every,) = uipdb.read(path, mask_held=False)
    assert bool(every.mask.all())


def test_the_processed_form_is_read(tmp_path):
    content = miniatures.processed(tmp_path / "test.pt")
    recordings = uipdb.read(tmp_path / "test.pt")
    assert [recording.name for recording in recordings] == content["fnames"]
    assert [len(recording) for recording in recordings] == [60, 45]
    rows, columns = np.triu_indices(6, 1)
    for index, recording in enumerate(recordings):
        assert recording.truth is not None
        assert_same_bits(recording.observations[:, :18], content["acc"][index].flatten(1).double())
        assert_same_bits(recording.observations[:, 18:], content["vuwb"][index][:, rows, columns].double())
        assert_same_bits(recording.truth, content["uwb_gt"][index][:, rows, columns].double())
        assert_same_bits(recording.extras["orientation"], content["ori"][index].double())
        assert recording.source == f"test/{recording.name}"
    assert sorted(uipdb.find(tmp_path)) == ["test"]


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("vuwb", lambda x: x * 1000, "median range"),
        ("vuwb", lambda x: x[:, :5], "vuwb is"),
        ("acc", lambda x: x[:-1], "acc is"),
        ("acc", lambda x: x + 1e9, "m/s² exceeds"),
        ("uwb_gt", lambda x: x * 0, "median range"),
        ("fnames", lambda x: 3, "not a text"),
        ("pose", lambda x: "pose", "pose is str"),
        ("tran", lambda x: x[:1], "tran is"),
        ("acc", lambda x: x[:1].expand(10**9, 6, 3), "more elements than the file can hold"),
        ("fnames", lambda x: functools.reduce(lambda item, _: [item, item], range(60), []), "not a text"),
    ],
)
def test_errors_of_the_processed_form(tmp_path, key, change, message):
    content = miniatures.processed(tmp_path / "test.pt")
    content[key][1] = change(content[key][1])
    torch.save(content, tmp_path / "test.pt")
    with pytest.raises(DataError, match=message):
        uipdb.read(tmp_path / "test.pt")


def test_lists_of_different_lengths_and_other_files(tmp_path):
    content = miniatures.processed(tmp_path / "test.pt")
    torch.save({**content, "fnames": ["one"]}, tmp_path / "test.pt")
    with pytest.raises(DataError, match="different lengths"):
        uipdb.read(tmp_path / "test.pt")
    torch.save([1, 2], tmp_path / "test.pt")
    with pytest.raises(DataError, match="expected a dict of lists"):
        uipdb.read(tmp_path / "test.pt")
    np.savez(
        tmp_path / "x_session1.npz", acc=np.zeros((3, 2, 3)), quat_xyzw=np.zeros((3, 2, 4)), uwb15=np.zeros((2, 15))
    )
    with pytest.raises(DataError, match="array acc: shape"):
        uipdb.read(tmp_path / "x_session1.npz")
    np.savez(tmp_path / "x_session1.npz", acc=np.array([object()]))
    with pytest.raises(DataError, match="of object"):
        uipdb.read(tmp_path / "x_session1.npz")


def test_a_lost_link_is_masked(tmp_path):
    path = tmp_path / "processed_04_session1_1.npz"
    arrays = miniatures.session(path)
    arrays["uwb15"][30:60, 4] = arrays["uwb15"][30, 4]
    arrays["uwb15"][70, 2] = np.nan
    arrays["uwb15"][72, 3] = 0.0
    np.savez(path, **arrays)
    (recording,) = uipdb.read(path)
    assert recording.mask[30:60, 6 + 4].nonzero()[:, 0].tolist() == [0]
    assert not bool(recording.mask[70, 6 + 2])
    assert not bool(recording.mask[72, 6 + 3])
    assert any("not positive" in note for note in recording.notes)
