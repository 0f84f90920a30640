"""Quaternions against scipy's rotations, and finite gradients at the identity."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from fwnkf.core import rotation

from ..tolerances import assert_close


def scipy_of(q):
    return Rotation.from_quat(np.asarray(q)[..., [1, 2, 3, 0]])


def quaternion_of(r):
    """scipy's scalar-last quaternion as ours; the sign is fixed by a non-negative scalar part."""
    q = r.as_quat()[..., [3, 0, 1, 2]]
    return np.where(q[..., :1] < 0, -q, q)


def random_unit(generator, count=200):
    return rotation.normalize(torch.randn(count, 4, generator=generator, dtype=torch.float64))


def same_rotation(p, q):
    """``q`` and ``-q`` are one rotation."""
    p = torch.as_tensor(p)
    q = torch.as_tensor(q)
    return torch.where((p * q).sum(-1, keepdim=True) < 0, -q, q)


def test_product_matrix_and_inverse_are_scipys(generator):
    p, q = random_unit(generator), random_unit(generator)
    product = rotation.multiply(p, q)
    assert_close(product, same_rotation(product, quaternion_of(scipy_of(p) * scipy_of(q))), "rounding")
    assert_close(rotation.to_matrix(p), scipy_of(p).as_matrix(), "rounding")
    inverse = rotation.conjugate(p)
    assert_close(inverse, same_rotation(inverse, quaternion_of(scipy_of(p).inv())), "rounding")


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-12, 1e-8, 1e-4, 0.1, 1.0, 3.0, math.pi - 1e-9])
def test_exp_and_log_are_scipys_at_every_size(generator, size):
    vector = torch.nn.functional.normalize(torch.randn(50, 3, generator=generator, dtype=torch.float64), dim=-1) * size
    q = rotation.exp(vector)
    assert_close(q, quaternion_of(Rotation.from_rotvec(vector.numpy())), "rounding")
    assert_close(rotation.log(q), vector)
    assert_close(rotation.log(-q), vector)
    assert_close(rotation.log(q), scipy_of(q).as_rotvec())
    if 0 < size < 1:  # relative accuracy: a small rotation is not rounded to zero
        assert_close(rotation.log(q) / size, vector / size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_series_and_closed_form_agree_at_the_threshold(dtype):
    """Left and right of the threshold, against float64 series of exp and log summed to high order."""
    edge = torch.finfo(dtype).eps ** 0.5
    for size in np.array([0.5, 0.99, 1.01, 2.0]) * edge:
        vector = torch.tensor([[size, 0.0, 0.0]], dtype=dtype)
        exact = vector[0, 0].double().item()
        q = rotation.exp(vector)
        assert_close(q[0, 1] / vector[0, 0], torch.tensor(math.sin(exact / 2) / exact, dtype=dtype), "rounding")
        assert_close(rotation.log(q)[0, 0] / vector[0, 0], torch.ones((), dtype=dtype), "rounding")


def test_distance_is_the_angle_between(generator):
    p, q = random_unit(generator), random_unit(generator)
    assert_close(rotation.distance(p, q), (scipy_of(p).inv() * scipy_of(q)).magnitude())
    assert_close(rotation.distance(p, -p), torch.zeros(200, dtype=torch.float64))


def test_skew_is_the_cross_product(generator):
    a, b = torch.randn(2, 20, 3, generator=generator, dtype=torch.float64)
    assert_close((rotation.skew(a) @ b.unsqueeze(-1)).squeeze(-1), np.cross(a, b), "rounding")


def test_wrap_keeps_the_angle_and_is_within_pi():
    angle = torch.cat((torch.linspace(-50, 50, 2001), torch.tensor([math.pi, -math.pi, 3 * math.pi]))).double()
    wrapped = rotation.wrap(angle)
    assert bool((wrapped >= -math.pi).all())
    assert bool((wrapped < math.pi).all())
    assert_close(torch.polar(torch.ones_like(angle), wrapped), np.exp(1j * angle.numpy()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_and_correct_at_the_identity(dtype):
    """d exp(δ)/dδ at 0 is half the identity, d log(q)/dv at the identity twice the identity."""
    zero = torch.zeros(3, dtype=dtype)
    jacobian = torch.autograd.functional.jacobian(rotation.exp, zero)
    assert torch.equal(jacobian[0], zero)
    assert_close(jacobian[1:], torch.eye(3, dtype=dtype) / 2, "rounding")
    identity = torch.tensor([1.0, 0, 0, 0], dtype=dtype)
    jacobian = torch.autograd.functional.jacobian(rotation.log, identity)
    assert_close(jacobian, torch.cat((zero[:, None], 2 * torch.eye(3, dtype=dtype)), 1), "rounding")
    gradient = torch.autograd.functional.jacobian(lambda q: rotation.distance(q, identity), identity)
    assert bool(gradient.isfinite().all())


def test_gradcheck_away_from_and_at_the_identity(generator):
    vector = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    vector[0] = 0
    vector[1] *= 1e-9
    assert torch.autograd.gradcheck(rotation.exp, vector.requires_grad_())
    q = random_unit(generator, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: rotation.log(rotation.normalize(x)), q)
    # at the identity along the sphere: log(exp(δ)) is the identity map
    assert torch.autograd.gradcheck(lambda v: rotation.log(rotation.exp(v)), vector.detach().requires_grad_())


def test_second_derivatives_are_finite_at_the_identity():
    """A loss through a Jacobian by differentiation (the EKF at rest) needs them."""
    hessian = torch.autograd.functional.hessian(
        lambda v: rotation.log(rotation.exp(v)).sum() + rotation.exp(v).sum(), torch.zeros(3, dtype=torch.float64)
    )
    assert_close(hessian, -0.25 * torch.eye(3, dtype=torch.float64))  # of cos(|v|/2) alone
