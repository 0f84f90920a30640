"""What every sensor and every motion keeps: Jacobians, covariances, dtypes, and what it says of itself."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.core import linearize
from fwnkf.core.composed import build_part
from fwnkf.core.layout import Layout
from fwnkf.core.motion import Motion
from fwnkf.registry import MOTIONS, SENSORS

from ..tolerances import assert_close

LAYOUT = Layout.parse(
    [
        ("position", "euclidean", 3),
        ("velocity", "euclidean", 3),
        ("orientation", "quaternion", 4),
        ("gyro_bias", "euclidean", 3),
        ("offset", "euclidean", 2),
        ("heading", "angle", 1),
        ("hard_iron", "euclidean", 3),
        ("disturbance", "euclidean", 3),
        ("oscillation", "euclidean", 6),
        ("drift", "euclidean", 3),
        ("factor", "euclidean", 1),
        ("rate", "euclidean", 3),
    ]
)
"""All that the sensors of the package read."""


class Still(Motion):
    """A state that does not move."""

    def __init__(self) -> None:
        super().__init__(None)
        self.layout = LAYOUT

    def transition(self, x, u, dt):
        return x

    def process_noise(self, dt):
        return torch.eye(LAYOUT.tangent_size)


SENSOR_CASES = {
    "airspeed": {},
    "barometer": {"up": (0.1, 0.0, -0.9)},
    "barometer without offset": {"name": "barometer", "offset_std": 0.0},
    "bounded_position": {},
    "gyro_bias": {},
    "level_magnetometer": {"field": (2.0, 15.0, -41.0)},
    "magnetometer": {},
    "magnetometer with states": {
        "name": "magnetometer",
        "field_std": 1.0,
        "hard_iron_std": 2.0,
        "std": (1.0, 2.0, 3.0),
    },
    "magnetometer with hard iron": {"name": "magnetometer", "hard_iron_std": 2.0},
    "position": {},
    "position with lever arm": {"name": "position", "lever_arm": (0.3, -0.2, 0.1)},
    "position with unknown lever arm": {"name": "position", "lever_arm": (0.3, -0.2, 0.1), "lever_arm_std": 0.1},
    "range": {"anchors": ((3.0, 4.0, 5.0), (-6.0, 0.0, 1.0))},
    "regressed": {"state_dim": LAYOUT.size, "layout": LAYOUT.describe(), "channels": 4},
    "range with offset": {"name": "range", "anchors": ((3.0, 4.0, 5.0),), "offset_std": 0.1},
    "position with an error that lasts": {"name": "position", "drift_std": 2.0},
    "roll_pitch_yaw": {},
    "rolling": {"mounting": (0.1, -0.2, 2.0), "axle_std": 1.0},
    "rolling, mounting known": {"name": "rolling", "mounting_std": 0.0, "axle": -1.5},
    "rotor_drag": {},
    "velocity": {},
    "velocity in the body": {"name": "velocity", "frame": "body", "std": (0.1, 0.2, 0.3)},
    "velocity on a lever arm": {"name": "velocity", "lever_arm": (0.3, -0.2, 0.1), "drift_std": 0.2},
    "velocity_across": {},
}


def make_sensor(case):
    options = dict(SENSOR_CASES[case])
    sensor = build_part(SENSORS, "sensor", options.pop("name", case), options)
    if case == "velocity_across":
        with torch.no_grad():
            sensor.axes.copy_(torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)))[0])
            sensor.offset_std.fill_(0.1)
        sensor.reading(offset="across_offset")
    if case == "regressed":
        sensor.H.copy_(torch.randn(sensor.H.shape, generator=torch.Generator().manual_seed(1)))
    return sensor


@pytest.fixture(params=SENSOR_CASES)
def system(request):
    """The sensor on a state that has all that it could read."""
    return fwnkf.System(Still(), sensors={"one": make_sensor(request.param)}).double()


def draw(layout, generator, dtype=torch.float64, batch=5):
    spread = 0.6 * torch.randn(batch, layout.tangent_size, generator=generator, dtype=dtype)
    return layout.boxplus(layout.origin(spread).expand(batch, -1), spread)


def test_every_sensor_has_a_case():
    assert {options.get("name", case) for case, options in SENSOR_CASES.items()} == set(SENSORS._modules)


def test_the_jacobian_is_that_of_differentiation(system, generator):
    x = draw(system.layout, generator)
    seen, H = system.linearize_observation(x)
    expected = linearize.jacobian(system.observe, x, system.layout, system.observation_layout)
    assert_close(seen, expected[0], "rounding")
    assert_close(H.expand_as(expected[1]), expected[1])
    said = system.observation_linearity
    assert (said == "state_dependent") == bool((expected[1] - expected[1][:1]).abs().max() > 1e-9)
    if said == "constant":
        zero = torch.zeros_like(x)
        assert not system.observe(zero).any()


def test_the_covariance_is_diagonal_and_positive(system):
    R = system.measurement_covariance()
    assert system.diagonal_noise
    assert (R.diagonal().diag() == R).all()
    assert (R.diagonal() > 0).all()


def test_it_takes_any_leading_axes(system, generator):
    x = draw(system.layout, generator, batch=6)
    assert_close(system.observe(x.view(2, 3, -1)).flatten(0, 1), system.observe(x), "rounding")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_comes_from_the_module(system, generator, dtype):
    x = draw(system.to(dtype).layout, generator, dtype)
    for tensor in (*system.linearize_observation(x), system.measurement_covariance()):
        assert tensor.dtype == dtype


def test_the_range_of_an_anchor_has_no_direction():
    uwb = build_part(SENSORS, "sensor", "range", {"anchors": ((0.0, 0.0, 0.0),)})
    seen, H = fwnkf.System(Still(), sensors={"uwb": uwb}).linearize_observation(LAYOUT.origin(torch.zeros(()))[None])
    assert not seen.any()
    assert not H.any()


MOTION_CASES = {
    "calibrated_strapdown": {"sites": 2, "tilt": True},
    "constant_velocity": {"dims": 3},
    "handheld": {},
    "heading": {},
    "multirotor": {},
    "navigation": {"scales": True, "rate": True, "drift_seconds": 30.0},
    "polynomial": {
        "state_dim": 6,
        "layout": (("heading", "angle", 1), ("q", "quaternion", 4), ("speed", "euclidean", 1)),
        "control_dim": 2,
        "degree": 3,
        "harmonics": 2,
        "control_products": True,
        "floor": 0.5,
    },
    "strapdown": {},
}


@pytest.fixture(params=MOTION_CASES)
def motion(request):
    torch.manual_seed(0)
    motion = build_part(MOTIONS, "motion", request.param, MOTION_CASES[request.param]).double()
    with torch.no_grad():
        for parameter in motion.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
        if isinstance(motion, fwnkf.systems.RegressedMotion):  # whose coefficients are fitted, not trained
            motion.W.copy_(0.05 * torch.randn(motion.W.shape))
            motion.terms.scale.copy_(1 + torch.rand(motion.terms.scale.shape))
    return motion


def test_every_motion_has_a_case():
    assert set(MOTION_CASES) == set(MOTIONS._modules)


def test_the_jacobian_of_a_motion_is_that_of_differentiation(motion, generator):
    x = draw(motion.layout, generator)
    u = torch.randn(len(x), motion.control_dim, generator=generator, dtype=x.dtype) if motion.control_dim else None
    if isinstance(motion, fwnkf.systems.HeadingMotion):
        u = torch.cat((u[:, :1], torch.nn.functional.normalize(u[:, 1:], dim=-1)), -1)  # an orientation
    dt = motion.dt * (0.5 + torch.rand(len(x), generator=generator, dtype=x.dtype))
    for control, step in ((u, dt), (u, None), (None, dt)):
        moved, F = motion.linearize_transition(x, control, step)
        expected = linearize.jacobian(lambda z: motion.transition(z, control, step), x, motion.layout, motion.layout)  # noqa: B023
        assert_close(moved, expected[0], "rounding")
        assert_close(F.expand_as(expected[1]), expected[1])


def test_the_noise_of_a_motion_is_a_covariance(motion):
    for Q in (motion.process_noise(None), *motion.process_noise(torch.tensor([0.1, 1.0], dtype=torch.float64))):
        assert (Q.mT == Q).all()
        assert torch.linalg.eigvalsh(Q).min() > -1e-18
