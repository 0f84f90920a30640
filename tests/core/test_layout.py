"""Layouts: box-plus and box-minus against scipy and each other, continuous features, invalid parts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from fwnkf import Layout, Part
from fwnkf.core.linearize import jacobian
from fwnkf.errors import ConfigError

from ..tolerances import assert_close

LAYOUT = Layout.parse([("p", "euclidean", 2), ("q", "quaternion", 4), ("psi", "angle", 1), ("v", "euclidean", 1)])


def random_points(generator, count=100):
    x = torch.randn(count, 8, generator=generator, dtype=torch.float64)
    q = torch.nn.functional.normalize(x[:, 2:6], dim=-1)
    psi = (torch.rand(count, 1, generator=generator, dtype=torch.float64) * 2 - 1) * math.pi
    return torch.cat((x[:, :2], q, psi, x[:, 7:]), -1)


def test_sizes_and_description():
    assert (LAYOUT.size, LAYOUT.tangent_size, LAYOUT.feature_size) == (8, 7, 14)
    assert Layout.parse(LAYOUT.describe()) == LAYOUT
    assert not LAYOUT.flat
    assert Layout.euclidean(3).flat


def test_boxplus_rotates_in_the_body_frame(generator):
    x = random_points(generator)
    delta = torch.randn(100, 7, generator=generator, dtype=torch.float64)
    moved = LAYOUT.boxplus(x, delta)
    assert_close(moved[:, :2], x[:, :2] + delta[:, :2], "rounding")
    assert_close(moved[:, 7], x[:, 7] + delta[:, 6], "rounding")
    expected = Rotation.from_quat(x[:, [3, 4, 5, 2]].numpy()) * Rotation.from_rotvec(delta[:, 2:5].numpy())
    assert_close(Rotation.from_quat(moved[:, [3, 4, 5, 2]].numpy()).as_matrix(), expected.as_matrix(), "rounding")
    assert_close(np.exp(1j * moved[:, 6].numpy()), np.exp(1j * (x[:, 6] + delta[:, 5]).numpy()), "rounding")
    assert bool((moved[:, 6].abs() <= math.pi).all())


def test_boxplus_and_boxminus_are_inverse(generator):
    x, y = random_points(generator), random_points(generator)
    assert_close(LAYOUT.boxminus(LAYOUT.boxplus(y, LAYOUT.boxminus(x, y)), x), torch.zeros(100, 7).double())
    delta = torch.randn(100, 7, generator=generator, dtype=torch.float64)
    delta[:, 2:5] = torch.nn.functional.normalize(delta[:, 2:5], dim=-1) * torch.linspace(0, 3.1, 100)[:, None].double()
    delta[:, 5] = torch.linspace(-3.1, 3.1, 100)
    assert_close(LAYOUT.boxminus(LAYOUT.boxplus(x, delta), x), delta)


def test_boxminus_takes_the_shortest_path(generator):
    difference = LAYOUT.boxminus(random_points(generator), random_points(generator))
    assert bool((difference[:, 2:5].norm(dim=-1) <= math.pi + 1e-12).all())
    assert bool((difference[:, 5].abs() <= math.pi).all())


def test_gradients_at_zero_are_the_identity():
    """∂((x ⊞ δ) ⊟ x)/∂δ at 0, at random points and at the origin."""
    for x in (
        LAYOUT.origin(torch.zeros((), dtype=torch.float64)),
        random_points(torch.Generator().manual_seed(3), 1)[0],
    ):
        jacobian = torch.autograd.functional.jacobian(
            lambda d, x=x: LAYOUT.boxminus(LAYOUT.boxplus(x, d), x), torch.zeros(7, dtype=torch.float64)
        )
        assert_close(jacobian, torch.eye(7, dtype=torch.float64))


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_float32_quaternions_stay_on_the_sphere(generator):
    x = random_points(generator, 5).float()
    for _ in range(3000):
        x = LAYOUT.boxplus(x, 0.3 * torch.randn(5, 7, generator=generator))
    assert_close(x[:, 2:6].norm(dim=-1), torch.ones(5), "rounding")


def test_features_are_continuous(generator):
    """q and -q, and angles that differ by 2π, have the same features; different rotations have different ones."""
    x = random_points(generator)
    twin = x.clone()
    twin[:, 2:6] *= -1
    twin[:, 6] += 2 * math.pi
    features = LAYOUT.features(x)
    assert features.shape == (100, LAYOUT.feature_size)
    assert_close(features, LAYOUT.features(twin))
    assert_close(features[:, 2:11].reshape(-1, 3, 3), Rotation.from_quat(x[:, [3, 4, 5, 2]].numpy()).as_matrix())
    assert_close(torch.atan2(features[:, 12], features[:, 11]), x[:, 6])


def test_boxplus_at_the_origin(generator):
    origin = LAYOUT.origin(torch.zeros((), dtype=torch.float64))
    delta = torch.randn(7, generator=generator, dtype=torch.float64)
    assert_close(LAYOUT.boxminus(LAYOUT.boxplus(origin, delta), origin), delta)
    assert torch.equal(LAYOUT.boxplus(origin, torch.zeros(7).double()), origin)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (("q", "quaternion", 3), "'q'.*size 3.*4 numbers"),
        (("x", "euclidean", 0), "'x'.*size 0"),
        pytest.param(
            ("x", "sphere", 2),
            "'x'.*'sphere'.*euclidean",
            marks=pytest.mark.unchecked("the type checker refuses it first"),
        ),
    ],
)
def test_invalid_parts_raise_a_config_error(part, message):
    with pytest.raises(ConfigError, match=message):
        Part(*part)


def test_jacobians_of_boxplus_and_features_agree_with_differentiation(generator):
    """The analytic Jacobians against forward differentiation, at a point where nothing is zero."""
    layout = Layout.parse(
        [("q", "quaternion", 4), ("theta", "angle", 2), ("x", "euclidean", 2), ("r", "quaternion", 4)]
    )
    delta = 0.7 * torch.randn(3, layout.tangent_size, generator=generator, dtype=torch.float64)
    x = layout.boxplus(layout.origin(delta).expand(3, -1), torch.randn(delta.shape, generator=generator).double())
    on_state, on_delta = layout.boxplus_jacobians(delta)
    flat = Layout.euclidean(layout.tangent_size)
    assert_close(on_state, jacobian(lambda z: layout.boxplus(z, delta), x, layout, layout)[1])
    assert_close(on_delta, jacobian(lambda z: layout.boxplus(x, z), delta, flat, layout)[1])
    image = Layout.euclidean(layout.feature_size)
    assert_close(layout.features_jacobian(x), jacobian(layout.features, x, layout, image)[1])
    at_zero, also_at_zero = layout.boxplus_jacobians(torch.zeros_like(delta))
    assert torch.equal(at_zero, torch.eye(layout.tangent_size, dtype=torch.float64).expand_as(at_zero))
    assert torch.equal(also_at_zero, at_zero)
