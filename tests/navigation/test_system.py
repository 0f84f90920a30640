"""The motion and the sensors of navigation: Jacobians against differences, the Earth against independent figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.core import linearize, rotation
from fwnkf.errors import ConfigError
from fwnkf.systems import Navigation, NavigationConfig, NavigationMotion, NavigationMotionConfig, earth

ALL = ("gnss_position", "gnss_velocity", "barometer", "magnetometer", "airspeed", "wheels")


def system(**options: object) -> Navigation:
    config = {"scales": True, "rate": True, "lever_arm": (0.3, -0.2, 0.1), "lever_arm_std": 0.1, "gnss_drift_std": 2.0}
    config |= {"sensors": ALL, "axle_std": 1.0, "axle": -1.2, "mounting": (0.1, -0.2, 3.0), **options}
    return Navigation(NavigationConfig(**config)).double()  # type: ignore[arg-type]


def state(of: Navigation, seed: int = 0, speed: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    move = speed * torch.randn(4, of.layout.tangent_size, generator=generator, dtype=torch.float64)
    return of.layout.boxplus(of.layout.origin(move).expand(4, -1), move)


@pytest.mark.parametrize("seconds", [0.0, 20.0])
def test_jacobian_of_the_motion_is_that_of_the_transition(seconds: float) -> None:
    model = system(drift_seconds=seconds)
    x, dt = state(model), torch.tensor([0.01, 0.05, 0.1, 0.2], dtype=torch.float64)
    u = torch.randn(4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3
    moved, F = model.linearize_transition(x, u, dt)
    expected, G = linearize.jacobian(lambda z: model.transition(z, u, dt), x, model.layout, model.layout)
    torch.testing.assert_close(moved, expected)
    torch.testing.assert_close(F, G, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_jacobian_of_a_sensor_is_that_of_its_function(name: str) -> None:
    model = system()
    x = state(model, 3, 0.5)
    _, H = model.linearize_observation(x)
    _, G = linearize.jacobian(model.observe, x, model.layout, model.observation_layout)
    rows = model.sensor_channels[name]
    # the mounting turns to first order in its angles
    torch.testing.assert_close(H[:, rows], G[:, rows], atol=1e-8, rtol=1e-6)


def test_velocity_of_an_antenna_on_a_lever_arm() -> None:
    model = system(sensors=("gnss_velocity",), lever_arm=(1.0, 0.0, 0.0))
    x = model.layout.origin(torch.zeros((), dtype=torch.float64)).clone()
    x[-3:] = torch.tensor([0.0, 0.0, 2.0])  # turning right at 2 rad/s: an antenna ahead moves to the right
    torch.testing.assert_close(model.observe(x), torch.tensor([0.0, 2.0, 0.0], dtype=torch.float64))


def test_a_vehicle_at_rest_on_the_turning_earth_stays_there() -> None:
    motion = NavigationMotion(NavigationMotionConfig(latitude=60.0, height=500.0)).double()
    x = motion.layout.origin(torch.zeros((), dtype=torch.float64))[None]
    # a gyroscope at rest measures the rate of the Earth, an accelerometer minus gravity
    u = torch.cat((motion.earth_rate, torch.tensor([0.0, 0.0, -motion.gravity])))[None].double()
    for _ in range(600):
        x = motion.transition(x, u, torch.tensor([1.0], dtype=torch.float64))
    # constants of the Earth were float32; a step that left out half of its turn would be off by 30 m
    assert float(x[0, :6].abs().max()) < 2e-3
    without = motion.transition(
        motion.layout.origin(x[0])[None],
        u * torch.tensor([0.0] * 3 + [1.0] * 3),
        torch.tensor([3600.0], dtype=torch.float64),
    )
    turned = float(rotation.log(without[0, 6:10]).norm())
    assert turned == pytest.approx(math.radians(15.041), rel=1e-4)  # degrees an hour of a sidereal day


def test_height_follows_the_curved_surface() -> None:
    """A degree of latitude further at constant height: a tangent plane would have fallen by 970 m."""
    motion = NavigationMotion(NavigationMotionConfig(latitude=45.0)).double()
    speed, steps = 100.0, 1111
    x = motion.layout.origin(torch.zeros((), dtype=torch.float64)).clone()
    x[3] = speed
    pitch = -speed * float(motion.curvature[0])
    u = torch.zeros(1, 6, dtype=torch.float64)
    x = x[None]
    for _ in range(steps):
        up = rotation.to_matrix(x[:, 6:10])[0, 2]
        # hold the velocity: the force that balances gravity, Coriolis and the turn of the vertical
        u[0, :3] = rotation.to_matrix(x[:, 6:10])[0].T @ motion.earth_rate + torch.tensor([0.0, pitch, 0.0])
        coriolis = torch.linalg.cross(2 * motion.earth_rate, x[0, 3:6])
        turn = torch.tensor([0.0, -speed * float(motion.curvature[0]), 0.0], dtype=torch.float64)
        hold = coriolis + torch.linalg.cross(turn, x[0, 3:6]) - torch.tensor([0.0, 0.0, motion.gravity])
        u[0, 3:] = rotation.to_matrix(x[:, 6:10])[0].T @ hold
        x = motion.transition(x, u, torch.tensor([1.0], dtype=torch.float64))
    assert float(x[0, 0]) == pytest.approx(speed * steps, rel=1e-3)
    assert abs(float(x[0, 2])) < 30.0
    assert float(up.norm()) == pytest.approx(1.0)


def test_gravity_and_ellipsoid_agree_with_published_values() -> None:
    # normal gravity of WGS 84 at the equator and the pole
    assert earth.gravity(0.0) == pytest.approx(9.7803253359, abs=1e-9)
    assert earth.gravity(math.pi / 2) == pytest.approx(9.8321849379, abs=1e-7)
    # a degree of latitude and of longitude at 45 degrees, in metres
    place = earth.north_east_down(np.array([[45.5, 7.0, 0.0], [45.0, 8.0, 0.0]]), (45.0, 7.0, 0.0))
    assert place[0, 0] * 2 == pytest.approx(111132, abs=10)
    assert place[1, 1] == pytest.approx(78847, abs=5)


def test_positions_and_degrees_are_inverse_also_across_the_date_line() -> None:
    origin = (-17.0, 179.999, 20.0)
    degrees = np.array([[-17.002, 179.998, 5.0], [-16.99, -179.99, 80.0]])
    place = earth.north_east_down(degrees, origin)
    assert abs(place[1, 1]) < 2000.0
    back = earth.geodetic(place, origin)
    back[:, 1] = (back[:, 1] + 180.0) % 360.0 - 180.0
    np.testing.assert_allclose(back, degrees, atol=1e-9)


def test_magnetic_field_is_close_to_the_world_magnetic_model() -> None:
    models = pytest.importorskip("ahrs.utils", reason="ahrs, an oracle of development, is not installed")
    model = models.WMM()
    for place in ((47.0, 8.0), (-33.0, 151.0), (37.0, -122.0), (65.0, 25.0), (0.0, 0.0)):
        model.magnetic_field(*place, 0.0)
        expected = 1e-3 * np.array([model.X, model.Y, model.Z])
        assert np.abs(np.array(earth.magnetic_field(*place)) - expected).max() < 3.0


def test_wheels_without_a_rate_are_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="rate = True"):
        NavigationConfig(sensors=("wheels",))
    with pytest.raises(ConfigError, match="there are gnss_position"):
        NavigationConfig(sensors=("radar",))
    with pytest.raises(ConfigError, match="pole"):
        NavigationConfig(latitude=90.0)


def test_a_saved_navigation_filter_is_the_same(tmp_path: object) -> None:
    model = fwnkf.build("ekf", system=system()).double()
    fwnkf.save(model, f"{tmp_path}/filter")
    again = fwnkf.load(f"{tmp_path}/filter")
    x = state(again.system)  # type: ignore[arg-type]
    torch.testing.assert_close(again.system.observe(x), model.system.observe(x), rtol=0, atol=0)
