"""Public recordings converted to MCAP: the same bits, and the same lines in their spectra."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fwnkf.cli.main import main
from fwnkf.data.log_recording import recording
from fwnkf.diagnosis.peaks import find_peaks
from fwnkf.diagnosis.spectra import noise_floor, spectrum
from fwnkf.logs import open_log

from .convert import converted, read

pytest.importorskip("mcap")


@pytest.mark.parametrize(("data_set", "start"), [("dido", "circle_a_1.5_v_2.5_r_1.5_yaw"), ("broad", "26")])
def test_values_stamps_and_truth_come_back(tmp_path: Path, data_set: str, start: str) -> None:
    original = read(data_set, start)
    original = original.slice(0, min(len(original), 15_000))
    log = open_log(converted(original, tmp_path))
    stream = log.signal("imu")
    measured = np.where(original.mask, original.observations, np.nan)
    assert np.array_equal(stream.stack(), measured[:, :6], equal_nan=True)
    assert np.abs(stream.time - original.time.numpy()).max() < 1e-9
    assert original.truth is not None
    assert original.truth_mask is not None
    pose = log.read("/truth")
    rows = original.truth_mask.numpy()
    q = np.stack([pose.columns[f"pose.orientation.{axis}"] for axis in "wxyz"], -1)
    assert np.array_equal(q, original.truth[:, -4:].numpy()[rows])
    if data_set == "broad":
        mag = log.read("/mag", [f"magnetic_field.{axis}" for axis in "xyz"])
        assert np.allclose(mag.stack() * 1e6, measured[:, 6:], rtol=1e-14, equal_nan=True)
    else:
        again = recording(log, truth="pose")
        assert again.truth is not None
        both = rows & again.truth_mask.numpy()
        assert both.sum() > 0.9 * rows.sum()


LINES = {
    ("broad", "26"): (("accel_x", "accel_y", "accel_z"), (40.1, 101.5)),
    ("broad", "27"): (("accel_x", "accel_y", "accel_z"), (44.1, 97.5)),
    ("dido", "circle_a_1.5_v_2.5_r_1.5_yaw"): (("accel_x", "accel_z", "gyro_x", "gyro_z"), (34.0, 64.0, 160.0)),
}
"""Lines (Hz) that the channels together show: of a vibrating telephone, and of a quadrotor."""


@pytest.mark.parametrize(("data_set", "start"), LINES)
def test_lines_are_those_of_scipy_on_the_original(tmp_path: Path, data_set: str, start: str) -> None:
    signal = pytest.importorskip("scipy.signal")
    original = read(data_set, start)
    stream = open_log(converted(original, tmp_path)).signal("imu")
    channels, lines = LINES[data_set, start]
    densities = spectrum(stream.time, stream.stack())
    peaks = find_peaks(densities, list(stream.columns), floor=noise_floor(densities))
    for line in lines:
        near = [peak for peak in peaks if peak.channel in channels and abs(peak.frequency / line - 1) < 0.05]
        assert near, (line, [(peak.channel, round(peak.frequency, 1)) for peak in peaks])
    strongest = max(peaks, key=lambda peak: peak.ratio)
    values = original.column(strongest.channel).nan_to_num(0.0).numpy()
    frequency, density = signal.welch(values, original.rate, nperseg=2048)
    around = np.abs(frequency / strongest.frequency - 1) < 0.1
    assert frequency[around][density[around].argmax()] == pytest.approx(strongest.frequency, rel=0.02)


NAMED = {
    ("broad", "26"): (40.1, 101.5),
    ("broad", "27"): (44.1, 97.5),
    ("dido", "circle_a_1.5_v_2.5_r_1.5_yaw"): (34.5, 62.9, 160.0),
}
"""Lines (Hz) that the whole command has to name."""


def lines_of(path: Path, capsys: pytest.CaptureFixture[str]) -> list[float]:
    """Frequencies of the lines that ``fwnkf diagnose`` finds."""
    assert main(["diagnose", str(path), "--json"]) == 0
    return [peak["frequency"] for peak in json.loads(capsys.readouterr().out)["peaks"]]


def test_the_command_names_the_lines_of_a_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twenty seconds in which the telephone vibrates; its motor slows down by a few per cent over the whole of them."""
    original = read("broad", "27")
    first = len(original) // 2
    found = lines_of(converted(original.slice(first, first + round(20 * original.rate)), tmp_path), capsys)
    for line in NAMED["broad", "27"]:
        assert any(frequency == pytest.approx(line, rel=0.04) for frequency in found), (line, sorted(found))


@pytest.mark.slow
@pytest.mark.parametrize(("data_set", "start"), NAMED)
def test_the_command_names_the_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data_set: str, start: str
) -> None:
    found = lines_of(converted(read(data_set, start), tmp_path), capsys)
    for line in NAMED[data_set, start]:
        assert any(frequency == pytest.approx(line, rel=0.02) for frequency in found), (line, sorted(found))
