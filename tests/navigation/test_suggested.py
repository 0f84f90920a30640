"""Settings from a review: units of the estimator, and nothing that hidden fixes do not support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from fwnkf.navigation.review import HeldOut, Noise
from fwnkf.navigation.suggested import fitted_noise, suggested


@dataclass
class Review:
    noises: tuple[Noise, ...]
    held_out: HeldOut | None
    delay: float = 0.2
    delay_error: float = 0.004
    fitted: bool = True


@dataclass
class Flown:
    facts: dict[str, Any]
    parameters: dict[str, float]


NOISES = (
    Noise("gyro_density", "", 0.003, 0.0015),
    Noise("gnss_position_std", "m", 0.3, 0.5),
    Noise("gnss_drift_std", "m", 0.4, 0.5),
    Noise("magnetometer_std", "µT", 3.0, 5.0),
)
LOG = Flown({"firmware": "PX4 1.16.1"}, {"EKF2_GPS_DELAY": 110.0, "EKF2_GYR_NOISE": 0.015, "EKF2_MAG_NOISE": 0.05})


def test_noises_have_the_units_of_the_estimator() -> None:
    noise = fitted_noise(Review(NOISES, None))  # type: ignore[arg-type]
    assert noise.magnetometer_std is not None
    assert noise.magnetometer_std.value == pytest.approx(0.03)  # gauss
    horizontal, _ = noise.gnss_position_std
    assert horizontal is not None
    assert horizontal.value == pytest.approx(0.5)  # what lasts and what does not


def test_a_supported_change_becomes_settings() -> None:
    held = HeldOut((), 1.0, 2.0, 0.75, 0.4, 0.9)
    rows, notes = suggested(Review(NOISES, held), LOG)  # type: ignore[arg-type]
    values = {row.name: row.value for row in rows}
    assert values["EKF2_GPS_DELAY"] == pytest.approx(200.0)
    assert values["EKF2_GYR_NOISE"] == pytest.approx(0.03)  # 0.003 rad/s/√Hz at predictions of 10 ms
    assert values["EKF2_MAG_NOISE"] == pytest.approx(0.03)
    assert "all of them, or none" in notes[0]


def test_nothing_is_suggested_without_a_significant_gain() -> None:
    rows, notes = suggested(Review(NOISES, HeldOut((), 1.0, 1.1, 0.17, -0.2, 0.5)), LOG)  # type: ignore[arg-type]
    assert rows == ()
    assert "interval begins at -20 %" in notes[0]
    rows, notes = suggested(Review(NOISES, HeldOut((), 1.0, 2.0)), LOG)  # type: ignore[arg-type]
    assert rows == ()
    assert "too few fixes" in notes[0]
