"""The network with an analytic Jacobian: against autograd, and its initial output."""

from __future__ import annotations

import pytest
import torch

from fwnkf.core.networks import JacobianNetwork


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("context", [0, 4])
def test_the_jacobian_is_that_of_autograd(order, context):
    torch.manual_seed(0)
    network = JacobianNetwork(3, context, 8, 2, order).double()
    for parameter in network.parameters():
        parameter.data += torch.randn_like(parameter)
    network.normalize(torch.randn(3).double(), torch.rand(3).double() + 0.5, torch.rand(2).double() + 0.5)
    x = torch.randn(5, 3).double()
    inputs = torch.randn(5, context).double() if context else None
    value, slope = network.with_jacobian(x, inputs)
    torch.testing.assert_close(value, network(x, inputs), rtol=0, atol=0)
    for i in range(5):
        row = None if inputs is None else inputs[i : i + 1]
        expected = torch.autograd.functional.jacobian(lambda z, row=row: network(z[None], row)[0], x[i])
        torch.testing.assert_close(slope[i], expected, rtol=1e-12, atol=1e-12)


def test_order_two_extrapolates_a_quadratic_exactly():
    """The linear part alone, fitted on [-1, 1] by least squares, is correct at 5, where tanh would saturate."""
    network = JacobianNetwork(2, 0, 4, 1, 2).double()
    x = torch.rand(200, 2, generator=torch.Generator().manual_seed(0)).double() * 2 - 1
    target = (x[:, :1] * x[:, 1:] - 0.5 * x[:, :1].square() + x[:, 1:]).detach()
    features, _ = network._features(x)
    network.straight.weight.data = torch.linalg.lstsq(features, target).solution.mT
    far = torch.tensor([[5.0, -4.0]]).double()
    assert float(network(far)) == pytest.approx(5 * -4 - 0.5 * 25 - 4, rel=1e-9)
    outlier = torch.tensor([[1e6, 0.0]]).double()
    assert float(network(outlier)) == pytest.approx(
        -0.5 * 64, abs=1e-6
    )  # products are constant beyond eight standard deviations


@pytest.mark.parametrize("order", [1, 2])
def test_the_initial_output_is_zero(order):
    value, slope = JacobianNetwork(3, 2, 8, 3, order).with_jacobian(torch.randn(4, 3), torch.randn(4, 2))
    assert not value.any()
    assert not slope.any()
