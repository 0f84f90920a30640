"""Sensors and trajectories of logs in the frames of the filter."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

from fwnkf.logs import open_log
from fwnkf.navigation import compare
from fwnkf.navigation.from_log import PX4_RADIUS, placed, recording
from fwnkf.systems import earth

ARDUPILOT = Path(os.environ.get("FWNKF_DATA", ".data")) / "navigation" / "ardupilot_sitl" / "delorean_00000001.BIN"


def projected(latitude: float, longitude: float, reference: tuple[float, float]) -> tuple[float, float]:
    """North and east by the azimuthal equidistant projection of PX4 (m)."""
    lat, lon, lat0, lon0 = map(math.radians, (latitude, longitude, *reference))
    cosine = math.sin(lat0) * math.sin(lat) + math.cos(lat0) * math.cos(lat) * math.cos(lon - lon0)
    angle = math.acos(min(1.0, cosine))
    k = angle / math.sin(angle) if angle else 1.0
    north = k * (math.cos(lat0) * math.sin(lat) - math.sin(lat0) * math.cos(lat) * math.cos(lon - lon0))
    return PX4_RADIUS * north, PX4_RADIUS * k * math.cos(lat) * math.sin(lon - lon0)


@pytest.mark.parametrize("reference", [(2.0, 30.0), (47.0, 8.0), (-60.0, -70.0)])
def test_a_position_on_the_sphere_of_an_autopilot_is_found_on_the_ellipsoid(reference):
    latitude, longitude, origin = reference[0] + 0.01, reference[1] + 0.01, (reference[0] - 0.001, reference[1], 100.0)
    local = np.array([[*projected(latitude, longitude, reference), -20.0]])
    found = placed(local, np.array([*reference, 90.0]), PX4_RADIUS, origin)
    there = earth.north_east_down(np.array([[latitude, longitude, 110.0]]), origin)
    np.testing.assert_allclose(found, there, atol=0.3)
    assert (
        np.abs(placed(local, np.array([*reference, 90.0]) * [1e7, 1e7, 1.0], PX4_RADIUS, origin) - found).max() < 1e-6
    )


@pytest.mark.skipif(not ARDUPILOT.is_file(), reason="the public logs are not here: set FWNKF_DATA")
def test_the_estimate_of_an_autopilot_stays_beside_the_truth_far_away():
    """The difference does not grow with the distance; a constant one is the lag of its estimate, at 10 m/s."""
    made = recording(open_log(ARDUPILOT))
    late = (made.autopilot.time > 65.0) & (made.autopilot.time < 120.0)
    truth = compare.interpolated(made.truth.time, made.truth.position, made.autopilot.time[late])
    assert np.ptp(truth[:, 0]) > 500.0
    slope = np.polynomial.polynomial.polyfit(truth[:, 0], (made.autopilot.position[late] - truth)[:, 0], 1)[1]
    assert abs(slope) < 1e-3
