"""Receivers and magnetometers: jumps, delays and fields of currents, on streams made of known motion."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from fwnkf.diagnosis.evidence import gather
from fwnkf.diagnosis.rules import aiding
from fwnkf.diagnosis.thresholds import THRESHOLDS
from fwnkf.logs.log import Stream
from fwnkf.logs.memory import MemoryLog

EARTH = np.array([20.0, 3.0, -42.0])
"""µT, in the world."""


def position(time):
    return np.stack([6 * np.sin(0.5 * time), 4 * np.cos(0.37 * time), 2 * np.sin(0.2 * time)], -1)


def velocity(time):
    return (position(time + 1e-4) - position(time - 1e-4)) / 2e-4


def named(name, values, parts="xyz"):
    return {f"{name}_{part}": column for part, column in zip(parts, values.T, strict=True)}


def vehicle(rng, late=0.0, jumps=(), per_ampere=(0.0, 0.0, 0.0), fast=True):
    """A log of pose, receiver, magnetometer and supply; the receiver is late, and jumps at times by metres."""
    pose_time, gnss_time, mag_time = (np.arange(0, 40, 1 / rate) for rate in (50.0, 5.0, 25.0))
    turned = Rotation.from_euler("zyx", np.stack([0.3 * pose_time, *(0.2 * np.sin([[0.9], [0.7]] * pose_time))], -1))
    measured = position(gnss_time - late) + 0.05 * rng.normal(size=(len(gnss_time), 3))
    for start, stop, size in jumps:
        measured[(gnss_time >= start) & (gnss_time < stop), 0] += size
    speed = velocity(gnss_time - late) + 0.03 * rng.normal(size=measured.shape)
    current = 15 + (6 * np.sin(0.8 * mag_time) if fast else 0.01 * rng.normal(size=len(mag_time)))
    field = turned[::2].inv().apply(EARTH) + current[:, None] * np.asarray(per_ampere) + [3.0, -2.0, 1.0]
    field += 0.3 * rng.normal(size=field.shape)
    orientation = named("orientation", turned.as_quat()[:, [3, 0, 1, 2]], "wxyz")
    pose = Stream("pose", pose_time, {**named("position", position(pose_time)), **orientation}, role="pose")
    gnss = Stream("gps", gnss_time, {**named("position", measured), **named("velocity", speed)}, role="gnss")
    mag = Stream("mag", mag_time, named("mag", field), role="mag")
    power = Stream("battery", mag_time, {"current": current}, role="power")
    return gather(MemoryLog([pose, gnss, mag, power]), THRESHOLDS)


def test_nothing_is_said_of_receivers_and_magnetometers_that_are_right(rng):
    assert list(aiding.findings(vehicle(rng))) == []


def test_a_jump_has_its_time_and_size_and_motion_is_none(rng):
    (finding,) = aiding.findings(vehicle(rng, jumps=[(20.0, 22.0, 15.0), (30.0, 31.0, 9.0)]))
    assert finding.cause == "gnss_glitch"
    assert finding.figures["at_s"] in (pytest.approx(20.0, abs=0.21), pytest.approx(22.0, abs=0.21))
    assert finding.figures["size_m"] == pytest.approx(15.0, abs=0.5)
    assert "one of 4 jumps" in finding.what  # there and back, twice


def test_jumps_are_found_without_a_velocity(rng):
    evidence = vehicle(rng, jumps=[(20.0, 22.0, 15.0)])
    gnss = evidence.streams["gnss"]
    columns = {name: gnss.columns[name] for name in aiding.POSITION}
    log = MemoryLog([Stream("gps", gnss.time, columns, role="gnss")])
    (finding,) = aiding.findings(gather(log, THRESHOLDS))
    assert finding.figures["size_m"] == pytest.approx(15.0, abs=1.0)


@pytest.mark.parametrize("late", [0.4, 0.7])
def test_a_late_receiver_has_its_delay(rng, late):
    (finding,) = aiding.findings(vehicle(rng, late=late))
    assert (finding.cause, finding.channels) == ("delay", ("gps",))
    assert finding.figures["delay_s"] == pytest.approx(late, abs=0.05)


def test_the_field_of_a_current_is_measured_in_each_axis(rng):
    per_ampere = np.array([0.5, -0.8, 0.3])
    (finding,) = aiding.findings(vehicle(rng, per_ampere=per_ampere))
    assert finding.cause == "interference"
    stated = [float(word) for word in finding.evidence.partition(" µT/A")[0].split(", ")]
    np.testing.assert_allclose(stated, per_ampere, atol=0.05)
    assert finding.figures["at_hover_ut"] == pytest.approx(np.linalg.norm(per_ampere) * 19.2, rel=0.1)


def test_a_current_that_does_not_change_says_nothing(rng):
    assert list(aiding.findings(vehicle(rng, per_ampere=(0.5, -0.8, 0.3), fast=False))) == []
