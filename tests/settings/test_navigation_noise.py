"""Fitted noises as settings of EKF2 and EKF3, against what the filters do with them."""

from __future__ import annotations

import pytest

from fwnkf.settings import Estimate, Gain, NavigationNoise, Vehicle, find, navigation_settings, significant

PX4 = Vehicle("PX4 1.16.1", {"EKF2_GYR_NOISE": 0.015, "EKF2_PREDICT_US": 8000, "EKF2_GPS_DELAY": 110.0,
                             "EKF2_GPS_V_NOISE": 0.3, "EKF2_GYR_B_NOISE": 1e-3})  # fmt: skip
COPTER = Vehicle("ArduCopter V4.3.6", {"GPS_DELAY_MS": 0.0, "EK3_GYRO_P_NSE": 0.015, "EK3_VELNE_M_NSE": 0.3,
                                       "EK3_VELD_M_NSE": 0.5})  # fmt: skip


def grown(noise: float, dt: float) -> float:
    """Variance after a second of predictions that add ``(dt · noise)²`` each, as EKF2 and EKF3 do."""
    return sum((dt * noise) ** 2 for _ in range(round(1 / dt)))


@pytest.mark.parametrize(("vehicle", "name", "dt"), [(PX4, "EKF2_GYR_NOISE", 0.008), (COPTER, "EK3_GYRO_P_NSE", 0.012)])
def test_white_noise_grows_as_fast_as_its_density_says(vehicle, name, dt):
    density = 0.0035
    (row,) = navigation_settings(NavigationNoise(gyro_density=Estimate(density)), vehicle)
    assert row.name == name
    # a second of white noise of this density; two digits are typed
    assert grown(row.value, dt) == pytest.approx(density**2, rel=0.05)


def test_a_bias_walks_as_fast_as_it_was_fitted():
    (row,) = navigation_settings(NavigationNoise(gyro_walk=Estimate(2e-4)), PX4)
    assert row.name == "EKF2_GYR_B_NOISE"
    assert grown(row.value, 0.008) == pytest.approx((2e-4) ** 2, rel=0.05)


def test_names_are_those_of_the_log():
    noise = NavigationNoise(gnss_delay=Estimate(0.2134, 0.004))
    (row,) = navigation_settings(noise, COPTER)
    assert (row.name, row.value, row.current, row.unit) == ("GPS_DELAY_MS", 213.0, 0.0, "ms")
    assert row.maximum == find("GPS1_DELAY_MS").maximum
    (newer,) = navigation_settings(noise, Vehicle("ArduCopter V4.6.3", {"GPS1_DELAY_MS": 0.0}))
    assert newer.name == "GPS1_DELAY_MS"


def test_velocities_have_one_parameter_in_px4_and_two_in_ardupilot():
    noise = NavigationNoise(gnss_velocity_std=(Estimate(0.12), Estimate(0.21)))
    assert [(row.name, row.value) for row in navigation_settings(noise, PX4)] == [("EKF2_GPS_V_NOISE", 0.12)]
    assert [(row.name, row.value) for row in navigation_settings(noise, COPTER)] == [
        ("EK3_VELNE_M_NSE", 0.12),
        ("EK3_VELD_M_NSE", 0.21),
    ]


def test_what_the_log_has_within_its_error_is_left_alone():
    assert navigation_settings(NavigationNoise(gnss_delay=Estimate(0.118, 0.005)), PX4) == ()
    assert len(navigation_settings(NavigationNoise(gnss_delay=Estimate(0.121, 0.005)), PX4)) == 1


def test_the_gain_of_its_group_decides():
    noise = NavigationNoise(
        gyro_density=Estimate(0.003),
        gnss_delay=Estimate(0.21),
        gain={"imu": Gain(0.5, 0.3, 0.7, "nats a fix"), "gnss_delay": Gain(0.5, -0.3, 1.3, "nats a fix")},
    )
    assert [row.name for row in significant(navigation_settings(noise, PX4))] == ["EKF2_GYR_NOISE"]


@pytest.mark.parametrize("firmware", ["Betaflight 4.5.1", "INAV 7.1.0", None])
def test_other_firmware_has_no_such_settings(firmware):
    noise = NavigationNoise(gyro_density=Estimate(0.003), gnss_delay=Estimate(0.2))
    assert navigation_settings(noise, Vehicle(firmware, {})) == ()


def test_every_field_becomes_a_setting_of_px4():
    one = Estimate(0.1)
    noise = NavigationNoise(one, one, one, one, (one, one), (one, one), one, one, one, one, one, one, (one, one, one))
    rows = navigation_settings(noise, Vehicle("PX4 1.16.1", {}))
    assert len(rows) == 15
    assert all(row.firmware == "PX4" for row in rows)
    for row in navigation_settings(noise, Vehicle("ArduCopter V4.6.3", {})):
        assert row.firmware == "ArduPilot"
