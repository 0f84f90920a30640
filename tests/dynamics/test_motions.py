"""Each system against something else that knows its motion: scipy, closed forms, conserved quantities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from fwnkf.core import rotation
from fwnkf.core.integrate import discretize
from fwnkf.systems import (
    ConstantVelocity,
    ConstantVelocityConfig,
    Lorenz,
    LorenzConfig,
    Pendulum,
    PendulumConfig,
    Strapdown,
    StrapdownConfig,
)
from fwnkf.systems.sensors.roll_pitch_yaw import roll_pitch_yaw

from ..tolerances import assert_close


def lorenz_rate(_, v, sigma=10.0, rho=28.0, beta=8 / 3):
    x, y, z = v
    return [sigma * (y - x), x * (rho - z) - y, x * y - beta * z]


def walk(system, x, steps, u=None, dt=None):
    for _ in range(steps):
        x = system.transition(x, u, dt)
    return x


# ---- Lorenz ---------------------------------------------------------------------------------------------------------


def test_lorenz_follows_its_equations_to_fourth_order(rng):
    start = rng.normal(0, 5, (4, 3))
    exact = np.stack([solve_ivp(lorenz_rate, (0, 0.4), x, rtol=1e-12, atol=1e-12).y[:, -1] for x in start])
    errors = []
    for substeps in (1, 2, 4):
        system = Lorenz(LorenzConfig(dt=0.01, substeps=substeps)).double()
        errors.append(np.abs(walk(system, torch.tensor(start), 40).numpy() - exact).max())
    # halving the step divides the error of RK4 by 2⁴; a third-order method would reach 8
    assert errors[0] / errors[1] > 12
    assert errors[1] / errors[2] > 12
    assert errors[2] < 1e-5


def test_lorenz_parameters_reach_the_equations(rng):
    start = rng.normal(0, 5, 3)
    options = {"sigma": 7.0, "rho": 20.0, "beta": 2.0}
    exact = solve_ivp(lambda t, v: lorenz_rate(t, v, **options), (0, 0.01), start, rtol=1e-12, atol=1e-12).y[:, -1]
    moved = (
        Lorenz(LorenzConfig(dt=0.01, substeps=8, **options)).double().transition(torch.tensor(start)[None], None, None)
    )
    np.testing.assert_allclose(moved[0], exact, rtol=1e-9)


# ---- pendulum -------------------------------------------------------------------------------------------------------


def test_pendulum_is_one_euler_step(rng):
    system = Pendulum(PendulumConfig()).double()
    theta, omega, u = rng.normal(0, 1, (3, 5))
    moved = system.transition(torch.tensor(np.stack((theta, omega), -1)), torch.tensor(u)[:, None], None).numpy()
    np.testing.assert_allclose(moved[:, 0], theta + 0.02 * omega, rtol=1e-13)
    np.testing.assert_allclose(moved[:, 1], omega + 0.02 * (-9.81 * np.sin(theta) - 0.1 * omega + u), rtol=1e-13)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_pendulum_keeps_its_energy_without_damping():
    # Euler gains energy at a rate proportional to dt: at 1e-5 s over one swing that is below 1e-3 of it
    system = Pendulum(PendulumConfig(damping=0.0, dt=1e-5)).double()
    x = torch.tensor([[2.0, 0.0], [0.5, 1.0]], dtype=torch.float64)

    def energy(state):
        return 0.5 * state[:, 1] ** 2 - 9.81 * state[:, 0].cos()

    before, after = energy(x), energy(walk(system, x, 20_000))
    torch.testing.assert_close(after, before, rtol=1e-3, atol=0)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_pendulum_converges_to_scipy_over_the_top():
    system = Pendulum(PendulumConfig(dt=2e-5)).double()
    x = walk(system, torch.tensor([[3.0, 4.0]], dtype=torch.float64), 25_000, torch.full((1, 1), 0.4).double())

    def rate(_, v):
        return [v[1], -9.81 * np.sin(v[0]) - 0.1 * v[1] + 0.4]

    exact = solve_ivp(rate, (0, 0.5), [3.0, 4.0], rtol=1e-11, atol=1e-11).y[:, -1]
    assert exact[0] > np.pi  # it went over, so the wrapped angle differs by a turn
    assert abs(float(x[0, 0]) - (exact[0] - 2 * np.pi)) < 1e-3
    assert abs(float(x[0, 1]) - exact[1]) < 1e-3


# ---- strapdown ------------------------------------------------------------------------------------------------------


def strapdown(**options):
    return Strapdown(StrapdownConfig(**options)).double()


def state(system, **parts):
    values = {"velocity": [0.0] * 3, "position": [0.0] * 3, "orientation": [1.0, 0, 0, 0]}
    values |= {"gyro_bias": [0.0] * 3, "accelerometer_bias": [0.0] * 3, **parts}
    return torch.tensor([[v for part in system.layout.parts for v in values[part.name]]], dtype=torch.float64)


def matrix(q):
    return Rotation.from_quat(np.roll(q, -1)).as_matrix()


def test_constant_force_without_rotation_is_the_parabola():
    system = strapdown(biases=False, dt=0.05)
    q = Rotation.from_rotvec([0.4, -1.0, 0.3])
    x = state(system, position=[1, 2, 3], velocity=[-1, 0.5, 2], orientation=np.roll(q.as_quat(), 1))
    force = np.array([0.3, -2.0, 8.0])
    moved = walk(system, x, 40, torch.tensor([[0, 0, 0, *force]], dtype=torch.float64))[0].numpy()
    pull = q.apply(force) + np.array([0, 0, -9.81])
    np.testing.assert_allclose(moved[:3], np.array([1, 2, 3]) + 2 * np.array([-1, 0.5, 2]) + 2.0 * pull, rtol=1e-12)
    np.testing.assert_allclose(moved[3:6], np.array([-1, 0.5, 2]) + 2 * pull, rtol=1e-12)


def test_constant_rate_is_the_closed_form():
    system = strapdown(biases=False, dt=0.05)
    rate = np.array([0.7, -0.2, 1.1])
    moved = walk(system, state(system), 40, torch.tensor([[*rate, 0, 0, 0]], dtype=torch.float64))[0].numpy()
    np.testing.assert_allclose(matrix(moved[6:10]), Rotation.from_rotvec(2.0 * rate).as_matrix(), atol=1e-12)


def test_turning_under_force_is_the_closed_form_to_second_order():
    # about z: v = ∫ R_z(w s) f ds = (f/w) [sin ws, 1 - cos ws], p = its integral
    w, f, T = 1.7, 2.0, 1.0
    speed = f / w * np.array([np.sin(w * T), 1 - np.cos(w * T)])
    place = f / w**2 * np.array([1 - np.cos(w * T), w * T - np.sin(w * T)])
    errors = []
    for steps in (50, 100, 200):
        system = strapdown(biases=False, gravity=(0.0, 0.0, 0.0), dt=T / steps)
        moved = walk(system, state(system), steps, torch.tensor([[0, 0, w, f, 0, 0]], dtype=torch.float64))[0].numpy()
        errors.append([np.abs(moved[3:5] - speed).max(), np.abs(moved[:2] - place).max()])
    errors = np.array(errors)
    assert (errors[-1] < 1e-4).all()
    assert (errors[:-1] / errors[1:] > 3.9).all()  # second order: a quarter at half the step


def test_biases_are_taken_off():
    system = strapdown()
    gyro, force = np.array([0.01, 0.02, -0.03]), np.array([0.1, -0.2, 0.3])
    u = torch.tensor([[0.5, 0.1, -0.4, 1.0, 2.0, 9.0]], dtype=torch.float64)
    biased = state(system, gyro_bias=gyro, accelerometer_bias=force)
    free = strapdown(biases=False)
    shifted = u - torch.tensor([[*gyro, *force]])
    assert_close(system.transition(biased, u, None)[:, :10], free.transition(state(free), shifted, None), "rounding")


def test_process_noise_is_that_of_the_integrals():
    system = strapdown(gyro_density=0.2, accelerometer_density=0.3, gyro_walk=0.4, accelerometer_walk=0.5)
    Q = system.process_noise(torch.tensor([0.7], dtype=torch.float64))[0]
    double = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    density = torch.diag(torch.tensor([0.0, 0.09], dtype=torch.float64))
    exact = discretize(double, double[:, :0], density, torch.tensor(0.7, dtype=torch.float64))[2]
    for axis in range(3):
        assert_close(Q[axis:6:3, axis:6:3], exact, "algebra")
    assert_close(
        Q.diagonal()[6:], 0.7 * torch.tensor([0.04] * 3 + [0.16] * 3 + [0.25] * 3).double(), "finite_difference"
    )


def test_angles_and_right_jacobian_are_scipys(rng):
    vectors = rng.normal(0, 0.8, (20, 3))
    quaternions = torch.tensor(np.roll(Rotation.from_rotvec(vectors).as_quat(), 1, -1))
    expected = Rotation.from_rotvec(vectors).as_euler("ZYX")[:, ::-1]
    np.testing.assert_allclose(roll_pitch_yaw(quaternions), expected, atol=1e-12)
    small = rng.normal(0, 1e-6, (20, 3))
    left = Rotation.from_rotvec(vectors).inv() * Rotation.from_rotvec(vectors + small)
    np.testing.assert_allclose(
        (rotation.right_jacobian(torch.tensor(vectors)) @ torch.tensor(small)[..., None])[..., 0],
        left.as_rotvec(),
        atol=1e-10,
    )


# ---- constant velocity ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_constant_velocity_is_the_exact_discretisation(dims):
    system = ConstantVelocity(ConstantVelocityConfig(dims=dims, density=0.7)).double()
    dt = torch.tensor([0.1, 2.0], dtype=torch.float64)
    eye, zero = torch.eye(dims).double(), torch.zeros(dims, dims).double()
    drift = torch.cat((torch.cat((zero, eye), 1), torch.cat((zero, zero), 1)))
    density = torch.block_diag(zero, 0.7 * eye)
    F, _, Q = discretize(drift, drift[:, :0], density, dt)
    x = torch.randn(2, 2 * dims, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    moved, slope = system.linearize_transition(x, None, dt)
    assert_close(slope, F)
    assert_close(moved, (F @ x[..., None])[..., 0])
    assert_close(system.process_noise(dt), Q)
