"""Algorithm 3 and a matrix as observation on states with rotations: against autograd, strapdown and the plain EKF."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.core import rotation
from fwnkf.core.layout import Layout
from fwnkf.core.observation import make_observation
from fwnkf.errors import ConfigError
from fwnkf.filters.parts.locally_linear import LocallyLinearTransition
from fwnkf.systems import LearnedSystem, Strapdown, StrapdownConfig

from ..conformance.cases import shake

PARTS = (("p", "euclidean", 2), ("q", "quaternion", 4), ("theta", "angle", 1))
LAYOUT = Layout.parse(PARTS)


def states(layout: Layout, count: int, seed: int = 0) -> torch.Tensor:
    """Points spread over the manifold, with rotations up to three radians."""
    generator = torch.Generator().manual_seed(seed)
    delta = torch.randn(count, layout.tangent_size, generator=generator, dtype=torch.float64)
    return layout.boxplus(layout.origin(delta).expand(count, -1), delta)


def tangent_jacobian(function, before: Layout, x: torch.Tensor, after: Layout | None) -> torch.Tensor:
    """The derivative of a function of points by autograd, in the tangent spaces of its input and its output."""
    value = function(x)

    def moved(delta: torch.Tensor) -> torch.Tensor:
        result = function(before.boxplus(x, delta))
        return result if after is None else after.boxminus(result, value.detach())

    return torch.autograd.functional.jacobian(moved, torch.zeros(before.tangent_size, dtype=x.dtype))


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("ratio", [None, 0.7])
def test_the_jacobian_of_a_locally_linear_step_is_that_of_autograd(rank, ratio):
    transition = LocallyLinearTransition(LAYOUT, rank).double()
    generator = torch.Generator().manual_seed(1)
    draw = {"generator": generator, "dtype": torch.float64}
    spread = torch.rand(LAYOUT.feature_size, **draw) + 0.5
    transition.normalize(spread, torch.rand(LAYOUT.tangent_size, **draw) + 0.5)
    x, head = states(LAYOUT, 4), 0.5 * torch.randn(4, transition.head_size, **draw)
    scale = None if ratio is None else torch.full((4,), ratio).double()
    mean, F = transition(x, head, scale)
    torch.testing.assert_close(LAYOUT.project(mean), mean)
    for i in range(4):
        rows = slice(i, i + 1)

        def step(point: torch.Tensor, rows: slice = rows) -> torch.Tensor:
            by = None if scale is None else scale[rows]
            return transition(point[None], head[rows], by)[0][0]

        torch.testing.assert_close(F[i], tangent_jacobian(step, LAYOUT, x[i], LAYOUT), rtol=1e-9, atol=1e-9)


def test_strapdown_navigation_is_locally_linear():
    """Velocity changes by ``R f``, linear in the entries of ``R``: the right gate is the mechanisation of an IMU."""
    system = Strapdown(StrapdownConfig(biases=False)).double()
    transition = LocallyLinearTransition(system.layout, 9).double()  # of full rank: U is the identity, V the slope
    generator = torch.Generator().manual_seed(2)
    imu = torch.randn(5, 6, generator=generator, dtype=torch.float64) * 3
    x, h = states(system.layout, 5), system.dt
    force = (rotation.to_matrix(rotation.exp(0.5 * h * imu[:, :3])) @ imu[:, 3:, None]).squeeze(-1)
    slope = torch.zeros(5, 9, 15, dtype=torch.float64)
    slope[:, :3, 3:6] = h * torch.eye(3, dtype=torch.float64)
    for axis in range(3):
        entries = slice(6 + 3 * axis, 9 + 3 * axis)
        slope[:, axis, entries] = 0.5 * h * h * force
        slope[:, 3 + axis, entries] = h * force
    gravity = torch.tensor(system.config.gravity, dtype=torch.float64).expand(5, 3)
    offset = torch.cat((0.5 * h * h * gravity, h * gravity, h * imu[:, :3]), -1)
    identity = torch.eye(9, dtype=torch.float64).expand(5, -1, -1)
    gate = torch.cat((identity, slope.mT), -2)
    mean, F = transition(x, torch.cat((gate.flatten(1), offset), -1), None)
    expected, jacobian = system.linearize_transition(x, imu, None)
    torch.testing.assert_close(mean, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(F, jacobian, rtol=1e-10, atol=1e-10)


def test_a_matrix_observes_the_entries_of_a_rotation():
    generator = torch.Generator().manual_seed(3)
    H = torch.randn(2, 2 + 9 + 1, generator=generator, dtype=torch.float64)
    observation = make_observation("learned_matrix", LAYOUT, 2, H, None, 0)
    x = states(LAYOUT, 3)
    observed, slope = observation.linearize(x)
    entries = rotation.to_matrix(x[:, 2:6]).flatten(1)
    torch.testing.assert_close(observed, torch.cat((x[:, :2], entries, x[:, 6:]), -1) @ H.mT)
    for i in range(3):
        expected = tangent_jacobian(observation.observe, LAYOUT, x[i], None)
        torch.testing.assert_close(slope[i], expected, rtol=1e-10, atol=1e-10)
    with pytest.raises(ConfigError, match=r"\(2, 12\).*nine for a quaternion"):
        make_observation("learned_matrix", LAYOUT, 2, torch.zeros(2, 7), None, 0)


class Wandering(fwnkf.System):
    """A random walk of all parts, observed through a matrix of their linear features; Jacobians by autograd."""

    def __init__(self, H: torch.Tensor) -> None:
        super().__init__(None)
        self.layout, self.observation_layout = LAYOUT, Layout.euclidean(len(H))
        self.control_dim, self.dt = 0, 1.0
        self.register_buffer("H", H)

    def transition(self, x, u, dt):
        return x

    def observe(self, x):
        return torch.cat((x[..., :2], rotation.to_matrix(x[..., 2:6]).flatten(-2), x[..., 6:]), -1) @ self.H.mT

    def process_noise(self, dt):
        return 0.01 * torch.eye(LAYOUT.tangent_size).to(self.H)

    def measurement_covariance(self):
        return 0.1 * torch.eye(len(self.H)).to(self.H)


@pytest.mark.parametrize("rank", [1, 3])
def test_before_training_it_is_the_ekf_of_a_random_walk(rank):
    generator = torch.Generator().manual_seed(4)
    H = torch.randn(3, 12, generator=generator, dtype=torch.float64)
    d = LAYOUT.tangent_size
    noise = {"Q": 0.01 * torch.eye(d).double(), "R": 0.1 * torch.eye(3).double()}
    options = {"layout": PARTS, "state_dim": 7, "observation_dim": 3, "observation": "learned_matrix"}
    walk = LearnedSystem.of(H=H, **noise, **options).double()
    model = fwnkf.FWNKF(walk, encoder=fwnkf.GRU(8), transition=fwnkf.LocallyLinear(rank), phi=fwnkf.Phi())
    y = torch.randn(2, 12, 3, generator=generator, dtype=torch.float64)
    prior = fwnkf.Gaussian(states(LAYOUT, 2, seed=5), 0.1 * torch.eye(d).double())
    run, expected = (filter.run(y, prior=prior) for filter in (model, fwnkf.EKF(Wandering(H))))
    torch.testing.assert_close(run.mean, expected.mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(run.cov, expected.cov, rtol=1e-9, atol=1e-9)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("steps", [200, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_covariances_stay_symmetric_and_positive(dtype, steps):
    torch.manual_seed(6)
    options = {"layout": PARTS, "state_dim": 7, "observation_dim": 3, "observation": "learned_matrix"}
    walk = LearnedSystem.of(**options)
    model = fwnkf.FWNKF(walk, encoder=fwnkf.GRU(8), transition=fwnkf.LocallyLinear(1), phi=fwnkf.Phi())
    model = shake(model, 0.05).to(dtype)
    y = torch.randn(3, steps, 3, generator=torch.Generator().manual_seed(7)).to(dtype)
    with torch.no_grad():
        run = model.run(y, prior=fwnkf.Gaussian(states(LAYOUT, 3).to(dtype), torch.eye(LAYOUT.tangent_size).to(dtype)))
    assert run.mean.isfinite().all()
    assert not run.status.any()
    assert torch.equal(run.cov, run.cov.mT)
    spectrum = torch.linalg.eigvalsh(run.cov.double())
    assert float((spectrum[..., 0] / spectrum[..., -1]).min()) > -torch.finfo(dtype).eps
