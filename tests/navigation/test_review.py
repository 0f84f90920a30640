"""The review of a flight: what was put into a simulated one is found, and what is reported of it is true."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fwnkf.core import rotation
from fwnkf.diagnosis.consistency import LoggedInnovation
from fwnkf.errors import DataError
from fwnkf.logs import open_log
from fwnkf.logs.results import rotation_matrices
from fwnkf.navigation import compare
from fwnkf.navigation.defaults import USUAL
from fwnkf.navigation.review import review, review_recording
from fwnkf.navigation.simulated import Flight
from fwnkf.navigation.solution import Solution
from fwnkf.navigation.timeline import preintegrated
from fwnkf.systems import NavigationConfig, earth
from fwnkf.systems.navigation import NavigationMotion, NavigationMotionConfig

FLIGHT = Flight()
HEXA = Path(os.environ.get("FWNKF_DATA", ".data")) / "logs" / "ulog" / "3dr_hexa_flight1.ulg"

pytestmark = pytest.mark.unchecked("thousands of steps, whose shapes other tests check")


@pytest.fixture(scope="module")
def recording():
    return FLIGHT.recording(np.random.default_rng(3))


@pytest.fixture(scope="module")
def found(recording):
    """With innovations of an autopilot that states twice their standard deviation."""
    rng = np.random.default_rng(0)
    time = np.arange(0.0, 60.0, 0.2)
    logged = {("barometer", 0): LoggedInnovation("baro_vpos", time, rng.normal(size=300), np.full(300, 4.0), None)}
    return review_recording(recording, logged=logged)


def test_the_delay_of_the_receiver_is_found(found):
    assert found.delay == pytest.approx(FLIGHT.gnss_delay, abs=0.02)
    assert abs(found.delay - FLIGHT.gnss_delay) < 4 * found.delay_error


def test_the_noises_that_were_put_in_are_found(found):
    noises = {row.name: row.value for row in found.noises}
    assert noises["gnss_position_std"] == pytest.approx(FLIGHT.position_std[0], rel=0.2)
    assert noises["gnss_velocity_std"] == pytest.approx(FLIGHT.velocity_std[0], rel=0.25)
    # two readings are averaged into one
    assert noises["magnetometer_std"] == pytest.approx(FLIGHT.magnetometer_std / math.sqrt(2), rel=0.2)


def test_innovations_of_the_rest_are_as_large_as_stated(found):
    assert {row.name for row in found.sensors} == {"gnss_position", "gnss_velocity", "barometer", "magnetometer"}
    for row in found.sensors:
        assert row.nis == pytest.approx(1.0, abs=0.3), row
        assert row.outliers == 0
    # the defaults of an autopilot state far too much
    barometer = next(row for row in found.sensors if row.name == "barometer")
    assert barometer.usual_nis < 0.1


def test_the_truth_is_within_the_stated_covariance(found, recording):
    truth = recording.truth
    for solution in (found.filtered, found.smoothed):
        late = solution.time >= found.rest
        for name in ("position", "velocity"):
            mean, std = solution.part(name)
            error = mean - compare.interpolated(truth.time, getattr(truth, name), solution.time)
            inside = (np.abs(error) < 1.96 * std)[late].mean()
            assert inside > 0.8, (name, inside)
    for row in found.errors:
        assert 0.2 < row.nees < 3.0, row
        # the drift of positions lasts for as long as the rest: one draw, which later fixes hardly tell from the place
        assert row.smoothed < row.filtered or row.name == "position"


def test_biases_at_the_end_are_those_that_were_put_in(found):
    states = {row.name: row for row in found.states}
    for kind, values in (("gyro bias", FLIGHT.gyro_bias), ("accelerometer bias", FLIGHT.accelerometer_bias)):
        for axis, value in zip("xyz", values, strict=True):
            row = states[f"{kind} {axis}"]
            assert abs(row.value - value) < 4 * row.std, row


def test_hidden_fixes_are_predicted_better_than_with_default_noises(found):
    held_out = found.held_out
    assert held_out.error < held_out.usual
    assert held_out.error > 0.9 * np.linalg.norm(FLIGHT.position_std)  # the noise of the fixes themselves
    assert held_out.ratio == pytest.approx(held_out.error / held_out.usual)
    assert all(window.begin >= found.rest and window.end <= found.end + 1e-6 for window in held_out.windows)
    squares = [window.fixes * window.error**2 for window in held_out.windows]
    assert math.sqrt(sum(squares) / sum(window.fixes for window in held_out.windows)) == pytest.approx(held_out.error)
    assert held_out.gain_low < held_out.gain < held_out.gain_high


def test_innovations_in_the_log_are_normalised_by_their_variances(found):
    row = next(row for row in found.innovations if row.sensor == "barometer")
    assert row.logged.mean == pytest.approx(0.25, rel=0.4)
    assert row.logged_time[0] >= found.rest
    assert all(row.logged is None for row in found.innovations if row.sensor != "barometer")


def test_the_review_is_plain_values(found):
    values = found.as_dict()
    assert values["delay"] == pytest.approx(found.delay, rel=1e-5)
    assert values["filtered"]["position"] == {"shape": [len(found.filtered.time), 3]}
    assert len(found.as_dict(arrays=True)["filtered"]["time"]) == len(found.filtered.time)
    assert f"{1e3 * found.delay:.0f} ±" in values["summary"]


def test_without_a_fit_the_filter_has_the_noises_of_the_autopilot(recording):
    found = review_recording(recording, autopilot="ArduPilot", fit=False, begin=5.0, end=25.0)
    noises, delay = USUAL["ArduPilot"]
    values = {row.name: row.value for row in found.noises}
    assert {name: value for name, value in noises.items() if name in values} == pytest.approx(
        {name: value for name, value in values.items() if name in noises}
    )
    assert values["barometer_walk"] == pytest.approx(NavigationConfig().barometer_walk)
    assert (found.delay, found.delay_error) == (delay, None)
    assert found.held_out.usual is None
    assert found.begin >= 5.0
    assert found.filtered.time[-1] == pytest.approx(25.0)


def test_a_recording_that_is_too_short_is_an_error_that_says_what_to_do(recording):
    with pytest.raises(DataError, match=r"simulated flight: .* there for 12\.0 s .* a fit needs 20 s.*--no-fit"):
        review_recording(recording, begin=10.0, end=22.0)
    with pytest.raises(DataError, match=r"there for 0\.0 s .* a filter needs 5 s$"):
        review_recording(recording, fit=False, begin=100.0)


def test_a_recording_that_is_too_long_is_refused_before_memory_is_taken(recording):
    """A stamp that is wrong by years, such as one in a damaged log."""
    imu, fixes = recording.imu, recording.sensors["gnss_position"]
    late = [replace(item, time=np.append(item.time[:-1], 1e9)) for item in (imu, fixes)]
    wrong = replace(recording, imu=late[0], sensors={**recording.sensors, "gnss_position": late[1]})
    with pytest.raises(DataError, match=r"too long at once; name a part of at most 7,200 s with --from and --to"):
        review_recording(wrong)


def test_angles_and_their_spread_agree_with_samples():
    """Standard deviations of roll, pitch and heading against those of rotations that were drawn."""
    rng = np.random.default_rng(1)
    turn = torch.tensor([[0.4, -0.6, 2.0]], dtype=torch.float64)
    q = rotation.exp(turn)[0].numpy()
    root = 0.02 * rng.normal(size=(3, 3))
    cov = np.zeros((1, 9, 9))
    cov[0, 6:9, 6:9] = root @ root.T
    parts = (("position", "euclidean", 3), ("velocity", "euclidean", 3), ("orientation", "quaternion", 4))
    mean = np.concatenate((np.zeros(6), q))[None]
    angles, std = Solution(np.zeros(1), mean, cov, parts, (45.0, 7.0, 0.0)).angles()
    drawn = rotation.multiply(
        torch.from_numpy(q)[None], rotation.exp(torch.from_numpy(rng.normal(size=(4000, 3)) @ root.T))
    )
    other = Solution(
        np.zeros(4000),
        np.concatenate((np.zeros((4000, 6)), drawn.numpy()), 1),
        np.zeros((4000, 9, 9)),
        parts,
        (0, 0, 0),
    )
    sampled = other.angles()[0]
    assert std[0] == pytest.approx(sampled.std(0), rel=0.06)
    assert angles[0] == pytest.approx(sampled.mean(0), abs=0.2)
    # heading, pitch and roll in turn give the rotation back
    roll, pitch, yaw = np.deg2rad(angles[0])
    axes = [rotation.exp(torch.tensor(axis)) for axis in ([0.0, 0, yaw], [0.0, pitch, 0], [roll, 0.0, 0])]
    again = rotation.multiply(rotation.multiply(axes[0], axes[1]), axes[2]).numpy()
    np.testing.assert_allclose(
        rotation_matrices(again[None, [1, 2, 3, 0]])[0], rotation_matrices(q[None, [1, 2, 3, 0]])[0], atol=1e-6
    )


def test_the_file_has_degrees_with_the_errors_of_the_position(found, tmp_path):
    path = found.smoothed.save(tmp_path / "track.csv", 5_000_000_000, {"log": "x"})
    stream = open_log(path).read(next(iter(open_log(path).topics)))
    places = np.stack([stream.columns[name] for name in ("latitude", "longitude", "height")], -1)
    position, std = found.smoothed.part("position")
    np.testing.assert_allclose(earth.north_east_down(places, found.smoothed.origin), position, atol=1e-4)
    moved = places[0] + [stream.columns["latitude_std"][0], stream.columns["longitude_std"][0], 0.0]
    shift = earth.north_east_down(moved, found.smoothed.origin) - position[0]
    assert shift[:2] == pytest.approx(std[0, :2], rel=1e-3)
    assert stream.columns["height_std"][0] == pytest.approx(std[0, 2])


@pytest.mark.skipif(not HEXA.is_file(), reason="the public logs are not here: set FWNKF_DATA")
def test_a_real_flight_agrees_with_its_autopilot():
    found = review(open_log(HEXA))
    assert (found.autopilot, found.format) == ("PX4", "ULog")
    assert 0.05 < found.delay < 0.15
    assert {row.sensor for row in found.innovations if row.logged is not None} >= {"gnss_position", "gnss_velocity"}
    largest = {row.name: row.largest for row in found.differences}
    assert largest["horizontally"] < 1.0
    assert largest["in attitude"] < 6.0
    assert found.held_out.error < found.held_out.usual


def test_the_simulated_flight_is_consistent_with_itself():
    """The noise-free IMU, integrated by the motion of the filter, ends where the truth ends."""
    flight = replace(FLIGHT, gyro_density=0.0, accelerometer_density=0.0, gyro_bias=(0.0,) * 3,
                     accelerometer_bias=(0.0,) * 3, seconds=20.0, position_std=(0.0,) * 3)  # fmt: skip
    made = flight.recording(np.random.default_rng(0))
    truth = made.truth
    motion = NavigationMotion(NavigationMotionConfig(latitude=made.origin[0], height=made.origin[2])).double()
    x = motion.layout.origin(torch.zeros((), dtype=torch.float64))[None].clone()
    start = np.concatenate((truth.position[0], truth.velocity[0], truth.orientation[0]))
    x[0, :10] = torch.from_numpy(start)
    ends = truth.time[::5]
    for u in torch.from_numpy(preintegrated(made.imu.time, made.imu.values, ends)[1:]):
        x = motion.transition(x, u[None], torch.tensor([0.05], dtype=torch.float64))
    np.testing.assert_allclose(x[0, :3].numpy(), truth.position[::5][-1], atol=0.05)
    np.testing.assert_allclose(x[0, 3:6].numpy(), truth.velocity[::5][-1], atol=0.01)
