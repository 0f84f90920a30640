"""What every system keeps: Jacobians, steps of any length, covariances, dtypes, saving."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf.core import linearize
from fwnkf.core.composed import ComposedSystem
from fwnkf.core.linear import LinearConfig, LinearSystem
from fwnkf.core.system import build_system
from fwnkf.registry import SYSTEMS
from fwnkf.systems import (
    ConstantVelocity,
    ConstantVelocityConfig,
    GravityAttitude,
    GravityAttitudeConfig,
    LearnedConfig,
    LearnedSystem,
    Lorenz,
    LorenzConfig,
    Pendulum,
    PendulumConfig,
    Strapdown,
    StrapdownConfig,
    StrapdownMotion,
    StrapdownMotionConfig,
)
from fwnkf.systems.sensors import (
    Airspeed,
    AirspeedConfig,
    Barometer,
    BarometerConfig,
    Magnetometer,
    MagnetometerConfig,
    Position,
    PositionConfig,
    Range,
    RangeConfig,
    RollPitchYaw,
    RollPitchYawConfig,
    Velocity,
    VelocityConfig,
)

from ..tolerances import assert_close


def learned(**options):
    """A learned system with random weights and scales: before training it would stand still."""
    torch.manual_seed(0)
    system = LearnedSystem(LearnedConfig(**options))
    with torch.no_grad():
        for parameter in (*system.network.parameters(), *system.observation.parameters()):
            parameter.add_(0.2 * torch.randn(parameter.shape))
        system.network.scale.uniform_(0.5, 2)
        system.network.reach.uniform_(0.1, 0.3)
    return system


def composed():
    """A strapdown with seven sensors, of which five bring states with them."""
    sensors = {
        "gps": Position(PositionConfig(std=2.0, lever_arm=(0.1, 0.2, -0.3), lever_arm_std=0.05)),
        "doppler": Velocity(VelocityConfig(std=0.2)),
        "baro": Barometer(BarometerConfig()),
        "compass": Magnetometer(MagnetometerConfig(field_std=2.0, field_walk=0.01, hard_iron_std=5.0)),
        "pitot": Airspeed(AirspeedConfig()),
        "uwb": Range(RangeConfig(anchors=((3.0, 4.0, 5.0), (-6.0, 0.0, 1.0)), offset_std=0.1)),
        "yaw": RollPitchYaw(RollPitchYawConfig()),
    }
    return fwnkf.System(StrapdownMotion(StrapdownMotionConfig()), sensors=sensors)


TURNING = (("position", "euclidean", 2), ("heading", "angle", 1), ("attitude", "quaternion", 4))
CASES = {
    "lorenz": lambda: Lorenz(LorenzConfig(process=0.3)),
    "lorenz, full, substeps": lambda: Lorenz(LorenzConfig(observed="full", substeps=3)),
    "pendulum": lambda: Pendulum(PendulumConfig(length=0.7, mass=1.3)),
    "strapdown": lambda: Strapdown(StrapdownConfig()),
    "strapdown, no biases, velocity": lambda: Strapdown(StrapdownConfig(biases=False, observed="velocity")),
    "strapdown, pose": lambda: Strapdown(StrapdownConfig(observed="pose")),
    "learned": lambda: learned(state_dim=3, observation_dim=2, order=2, dt=0.1, learn=("Q", "R")),
    "learned, turning, with control": lambda: learned(
        state_dim=7, observation_dim=3, control_dim=2, layout=TURNING, observation="learned_network"
    ),
    "learned, given function": lambda: learned(
        state_dim=2,
        observation_dim=2,
        control_dim=1,
        layout=Pendulum.layout.describe(),
        observation="given_function",
        observed_by={"name": "pendulum", "config": {"length": 0.7}},
    ),
    "learned, random walk, full R": lambda: LearnedSystem.of(
        H=torch.tensor([[1.0, 0.5, 0.0], [0.0, 2.0, 1.0]]), R=torch.tensor([[1.0, 0.3], [0.3, 0.5]]), learn=("R",)
    ),
    "linear": lambda: LinearSystem(
        LinearConfig(state_dim=2, observation_dim=1, control_dim=1, continuous=True, diagonal_noise=True, dt=0.1),
        F=torch.tensor([[0.0, 1.0], [-4.0, -0.3]]),
        B=torch.tensor([[0.0], [1.0]]),
    ),
    "composed": lambda: composed(),
    "composed, a system with another sensor": lambda: Lorenz(LorenzConfig()).with_sensor(
        "sum", fwnkf.Sensor(lambda x: x.sum(-1), R=0.1, channels=1, linear=True, name="contract_sum")
    ),
    "gravity attitude": lambda: GravityAttitude(GravityAttitudeConfig()),
    "gravity attitude, with rest, not level": lambda: GravityAttitude(
        GravityAttitudeConfig(vertical_std=0.1, rest_rate_std=0.01)
    ),
    "constant velocity": lambda: ConstantVelocity(ConstantVelocityConfig(dims=3, density=0.4)),
}
TESTS = Path(__file__).parents[1]
OWN_TESTS = {
    "handheld": "dynamics/test_handheld.py",
    "heading": "dynamics/test_heading.py",
    "calibrated_strapdown": "dynamics/test_inertial_calibrated.py",
    "drag_strapdown": "dynamics/test_inertial_drag.py",
    "multirotor": "tasks/dido/test_attitude.py",
}
"""Systems whose controls have a form of their own (quaternions, flags), so that no random control is valid."""
STATED = {SYSTEMS.name_of(type(make())) for make in CASES.values()} | set(OWN_TESTS)
CASES |= {name: partial(build_system, name, {}) for name in SYSTEMS._modules if name not in STATED}
"""A system without a case is held to the laws with its defaults."""


@pytest.fixture(params=CASES)
def system(request):
    return CASES[request.param]().double()


def draw(system, generator, batch=6, dtype=torch.float64):
    """States spread over the manifold (pitch away from ±90 degrees), controls and steps of many lengths."""
    origin = system.layout.origin(torch.zeros((), dtype=dtype)).expand(batch, -1)
    spread = 0.6 * torch.randn(batch, system.layout.tangent_size, generator=generator, dtype=dtype)
    u = torch.randn(batch, system.control_dim, generator=generator, dtype=dtype) * 3 if system.control_dim else None
    dt = torch.rand(batch, generator=generator, dtype=dtype) * 10 * system.dt
    return system.layout.boxplus(origin, spread), u, dt


def test_the_jacobians_are_those_of_differentiation(system, generator):
    x, u, dt = draw(system, generator)
    for step in (dt, None):
        moved, F = system.linearize_transition(x, u, step)
        expected = linearize.jacobian(lambda z: system.transition(z, u, step), x, system.layout, system.layout)  # noqa: B023
        assert_close(moved, expected[0], "rounding")
        assert_close(F.expand_as(expected[1]), expected[1], "algebra")
    seen, H = system.linearize_observation(x)
    expected = linearize.jacobian(system.observe, x, system.layout, system.observation_layout)
    assert_close(seen, expected[0], "rounding")
    assert_close(H.expand_as(expected[1]), expected[1], "algebra")


def test_the_jacobian_is_smooth_where_nothing_turns(generator):
    system = Strapdown(StrapdownConfig()).double()
    x, u, dt = draw(system, generator)
    for size in (0.0, 1e-9, 1e-5, 1e-3):
        # the rate that is left after the bias decides which branch of the rotation is taken
        slow = torch.cat((x[:, 10:13] + size * u[:, :3], u[:, 3:]), -1)
        _, F = system.linearize_transition(x, slow, dt)
        expected = linearize.jacobian(lambda z: system.transition(z, slow, dt), x, system.layout, system.layout)[1]  # noqa: B023
        assert_close(F, expected, "finite_difference")  # differentiation itself takes the small-angle branch here


def test_without_dt_a_step_is_nominal(system, generator):
    x, u, _ = draw(system, generator)
    nominal = torch.full((len(x),), system.dt, dtype=x.dtype)
    assert_close(system.transition(x, u, None), system.transition(x, u, nominal), "rounding")
    Q = system.process_noise(nominal)
    assert_close(system.process_noise(None).expand_as(Q), Q, "rounding")


def test_a_step_of_no_time_changes_nothing(system, generator):
    x, u, dt = draw(system, generator)
    moved, F = system.linearize_transition(x, u, 0 * dt)
    assert_close(moved, x, "rounding")
    assert_close(F, torch.eye(system.layout.tangent_size).to(F).expand_as(F), "rounding")
    assert not system.process_noise(0 * dt).any()


def test_covariances_are_symmetric_and_positive(system, generator):
    _, _, dt = draw(system, generator)
    states = system.sensor_states() if isinstance(system, ComposedSystem) else []
    constant = sum(state.size for state in states if not state.walk and state.seconds is None)
    for cov in (*system.process_noise(dt), system.process_noise(None)):
        moving = cov.diagonal() > 0
        assert int((~moving).sum()) == constant
        assert not cov[~moving].any()
        assert (cov == cov.mT).all()
        assert torch.linalg.eigvalsh(cov[moving][:, moving]).min() > 0
    R = system.measurement_covariance()
    assert (R.mT == R).all()
    assert torch.linalg.eigvalsh(R).min() > 0
    assert (R.diagonal().diag() == R).all() == system.diagonal_noise
    assert R.shape == (system.observation_layout.size, system.observation_layout.size)


def test_what_it_says_of_its_jacobians_is_true(system, generator):
    x, u, _ = draw(system, generator)
    dt = torch.full((len(x),), 0.7 * system.dt, dtype=x.dtype)
    one = None if u is None else u[:1].expand_as(u)
    (moved, F), (seen, H) = system.linearize_transition(x, one, dt), system.linearize_observation(x)
    F, H = F.expand(len(x), -1, -1), H.expand(len(x), -1, -1)
    if system.transition_linearity != "state_dependent":
        assert_close(F, F[:1].expand_as(F), "rounding")
    if system.transition_linearity == "constant":
        at_rest = system.transition(torch.zeros_like(x), one, dt)
        assert_close(moved, (F @ x.unsqueeze(-1)).squeeze(-1) + at_rest, "rounding")
        assert not system.transition(torch.zeros_like(x), None, dt).any()
    if system.observation_linearity != "state_dependent":
        assert_close(H, H[:1].expand_as(H), "rounding")
    if system.observation_linearity == "constant" and system.layout.flat:
        assert_close(seen, (H @ x.unsqueeze(-1)).squeeze(-1), "rounding")
    kinds = ("constant", "time_varying", "state_dependent")
    assert kinds.index(system.linearity) == max(
        kinds.index(system.transition_linearity), kinds.index(system.observation_linearity)
    )


def test_observation_takes_any_leading_axes(system, generator):
    x, _, _ = draw(system, generator)
    assert_close(system.observe(x.view(2, 3, -1)).flatten(0, 1), system.observe(x), "rounding")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_comes_from_the_module(system, generator, dtype):
    x, u, dt = draw(system.to(dtype), generator, dtype=dtype)
    for tensor in (
        *system.linearize_transition(x, u, dt),
        *system.linearize_observation(x),
        system.process_noise(None),
        system.process_noise(dt),
        system.measurement_covariance(),
    ):
        assert tensor.dtype == dtype


def test_float64_keeps_every_digit_of_the_options():
    # a buffer made in float32 would leave 8/3 and 0.26 with seven digits
    assert Lorenz(LorenzConfig()).double().measurement_covariance()[0, 0] == 0.26
    assert Pendulum(PendulumConfig(process=0.1)).double().process_noise(None)[0, 0] == 0.1


@pytest.mark.parametrize("name", ["ekf", "ukf"])
def test_filters_run_on_it_and_come_back_from_disk(system, generator, name, tmp_path):
    x, _, _ = draw(system, generator, batch=2)
    y = system.observe(x).unsqueeze(1).repeat(1, 5, 1)
    u = torch.randn(2, 5, system.control_dim, generator=generator, dtype=y.dtype) if system.control_dim else None
    built = fwnkf.build(name, system=system)
    prior = fwnkf.Gaussian(x, 0.01 * torch.eye(system.layout.tangent_size, dtype=y.dtype))
    run = built.run(y, u, prior=prior).raise_for_status()
    assert run.mean.isfinite().all()
    again = fwnkf.load(fwnkf.save(built, tmp_path / name)).run(y, u, prior=prior)
    assert (again.mean == run.mean).all()


def test_systems_without_a_case_have_tests_of_their_own():
    assert set(OWN_TESTS) <= set(SYSTEMS)
    assert [path for path in OWN_TESTS.values() if not (TESTS / path).is_file()] == []


def test_configs_are_plain():
    for make in CASES.values():
        for value in dataclasses.asdict(make().config).values():
            assert value is None or isinstance(value, (bool, int, float, str, tuple, dict))
