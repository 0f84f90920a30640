"""Settings of an autopilot from the review of a log: what was fitted, in the words and units of its estimator."""

from __future__ import annotations

import math

from ..logs.log import Log
from ..settings import Gain, Suggestion, Vehicle, navigation_settings, significant
from ..settings.navigation_noise import Estimate, Group, NavigationNoise
from .defaults import MICROTESLA
from .review import NavigationReview

TOGETHER: tuple[Group, ...] = (
    "imu", "bias", "gnss_position", "gnss_velocity", "barometer", "magnetometer", "airspeed", "gnss_delay",
)  # fmt: skip
"""What is fitted at once, so that it has one gain."""


def fitted_noise(found: NavigationReview) -> NavigationNoise:
    """The noises and the delay of a review, with the gain on fixes that were hidden.

    Errors of GNSS that last are part of its standard deviation here: an autopilot has one number for both.
    """
    values = {row.name: row.value for row in found.noises}

    def of(name: str, lasting: str = "", scale: float = 1.0) -> Estimate | None:
        if name not in values:
            return None
        return Estimate(scale * math.hypot(values[name], values.get(lasting, 0.0)))

    gain = {}
    held = found.held_out
    if held is not None and held.gain is not None and held.gain_low is not None and held.gain_high is not None:
        low, high = 100 * held.gain_low, min(100 * held.gain_high, 100.0)
        share = Gain(100 * held.gain, low, high, "% less squared error of hidden fixes")
        gain = dict.fromkeys(TOGETHER, share)
    return NavigationNoise(
        gyro_density=of("gyro_density"),
        accelerometer_density=of("accelerometer_density"),
        gyro_walk=of("gyro_walk"),
        accelerometer_walk=of("accelerometer_walk"),
        gnss_position_std=(of("gnss_position_std", "gnss_drift_std"), of("gnss_height_std", "gnss_drift_std")),
        gnss_velocity_std=(of("gnss_velocity_std", "velocity_drift_std"), of("gnss_climb_std", "velocity_drift_std")),
        barometer_std=of("barometer_std"),
        magnetometer_std=of("magnetometer_std", scale=1 / MICROTESLA),
        airspeed_std=of("airspeed_std"),
        gnss_delay=Estimate(found.delay, found.delay_error) if found.fitted else None,
        gain=gain,
    )


def suggested(found: NavigationReview, log: Log) -> tuple[tuple[Suggestion, ...], tuple[str, ...]]:
    """Settings whose gain on hidden fixes is significant, and notes on why there are no others.

    All were fitted together, and the gain is of all of them together.
    """
    vehicle = Vehicle(log.facts.get("firmware"), log.parameters)
    every = navigation_settings(fitted_noise(found), vehicle)
    rows = significant(every)
    if rows or not every:
        return rows, ("The gain is that of all settings together: change all of them, or none.",) if rows else ()
    held = found.held_out
    if held is None or held.gain is None or held.gain_low is None:
        return (), ("Nothing is suggested: too few fixes could be hidden to tell whether a change helps.",)
    return (), (
        f"Nothing is suggested: hidden fixes are predicted with {100 * held.gain:.0f} % less squared error, but the "
        f"interval begins at {100 * held.gain_low:.0f} %.",
    )
