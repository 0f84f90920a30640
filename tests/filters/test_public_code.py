"""The filter of the paper's public code against its equations in numpy, one trajectory at a time."""

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.core import iir
from fwnkf.errors import ConfigError
from fwnkf.filters.baselines.fwnkf_public_code import POLE_RADIUS, PublicCodeFWNKF, StableShaper

from ..tolerances import assert_close
from .vane import STEP, array, build, gru, linear, reference_inputs, run, vane_seen, wrapped

SMALL = {"units": 5, "rank": 2, "q_rank": 2, "r_rank": 1}
INSIDE = POLE_RADIUS * (1 - iir.ROUNDING_MARGIN)


def small(**options) -> PublicCodeFWNKF:
    """A filter of a vane, with weights and a Φ of order one, where an error shows."""
    net = build("fwnkf_public_code", **{**SMALL, **options})
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return net


# ---- the equations -------------------------------------------------------------------------------------------------


def third_order(raw):
    """``b`` and ``a`` of order 3 as polynomials in ``z⁻¹``, from ``(α, β, b0 - 1, b1, b2)`` and ``(α, b1)``."""
    turn, square = INSIDE, INSIDE**2
    pair = [1, turn * (1 + np.tanh(raw[1])) * np.tanh(raw[0]), square * np.tanh(raw[1])]
    return np.convolve([1 + raw[2], raw[3], raw[4]], [1, raw[6]]), np.convolve(pair, [1, turn * np.tanh(raw[5])])


def noise(diagonal, factor):
    L = factor.reshape(len(diagonal), -1)
    return np.diag(np.log1p(np.exp(diagonal)) + 1e-5) + L @ L.T


def reference(net, x, P, ys, us, dts, masks, in_gain=None):
    """Means, covariances and predicted covariances, step by step; ``in_gain`` replaces the latter in the gain."""
    config = net.config
    b, a = third_order(array(net.shaper.raw))
    hidden = [np.zeros(config.units) for _ in range(config.layers)]
    shaped_past, innovations = np.zeros((3, 2)), np.zeros((4, 2))
    results = []
    for t, (y, u, dt, mask) in enumerate(zip(ys, us, dts, masks, strict=True)):
        expected = vane_seen(x)[0]
        signal = np.array([np.cos(x[0]), np.sin(x[0]), x[1], *np.where(mask > 0, y, expected), u])
        for layer, cell in enumerate(net.encoder.cells):
            signal = hidden[layer] = gru(cell, signal, hidden[layer])
        sizes = np.cumsum([4 * config.rank, 2, 2, 2 * config.q_rank, 2])
        gate, offset, q, q_factor, r, r_factor = np.split(linear(net.head, signal), sizes)
        U, V = np.tanh(gate).reshape(2, 2, config.rank)
        change = 0.1 * U @ V.T * dt / STEP
        prior = wrapped(x + change @ x + offset * dt / STEP)
        A = np.eye(2) + change
        P = A @ P @ A.T + noise(q, q_factor) * dt / STEP
        R = noise(r, r_factor)
        predicted, H = vane_seen(prior)
        innovations = np.vstack([wrapped(y - predicted) * mask, innovations[:-1]])
        shaped = b @ innovations - a[1:] @ shaped_past  # the difference equation itself
        shaped_past = np.vstack([shaped, shaped_past[:-1]])
        seen = mask > 0
        Hs, Rs, frozen = H[seen], R[np.ix_(seen, seen)], P if in_gain is None else in_gain[t]
        K = frozen @ Hs.T @ np.linalg.inv(Hs @ frozen @ Hs.T + Rs) if seen.any() else np.zeros((2, 0))
        x, ahead = wrapped(prior + K @ shaped[seen]), P
        P = (np.eye(2) - K @ Hs) @ P @ (np.eye(2) - K @ Hs).T + K @ Rs @ K.T
        results.append((x, P, ahead))
    return [np.array(series) for series in zip(*results, strict=True)]


def test_it_equals_its_equations(records):
    """Across the seam of an angle, with controls, irregular steps and channels that are missing."""
    net = small()
    out = run(net, records)
    for item in range(3):
        means, covs, ahead = reference(net, *reference_inputs(records, item))
        assert_close(net.layout.boxminus(out.mean[item], torch.as_tensor(means)), torch.zeros(4, 2).double())
        assert_close(out.cov[item], covs)
        assert_close(out.prior_cov[item], ahead)


# ---- what has no gradient ------------------------------------------------------------------------------------------


def gradients(net, loss):
    net.zero_grad()
    loss.backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in net.named_parameters()}


def test_no_gradient_goes_through_the_covariance_in_the_gain(records):
    """Estimates depend on Q through it alone; on everything else in other ways too."""
    net = small()
    process = [net.head_rows(name) for name in ("q", "q_factor")]
    of_mean = gradients(net, run(net, records).mean.square().sum())
    of_cov = gradients(net, run(net, records).cov.square().sum())
    for name in ("head.weight", "head.bias"):
        for rows in process:
            assert not of_mean[name][rows].any()
            assert of_cov[name][rows].any()
            of_mean[name][rows] = 1
        assert of_mean[name].flatten(1).any(1).all() if of_mean[name].ndim > 1 else of_mean[name].all()
    assert of_mean["shaper.raw"].all()


@pytest.mark.parametrize("name", ["head.bias", "shaper.raw"])
def test_the_gradient_is_that_of_a_gain_whose_covariance_is_a_constant(name, records, rng):
    """Against differences of the equations, in which the gain keeps the covariances of the unchanged parameters."""
    net = small()
    inputs = reference_inputs(records, 1)  # with full, partial and empty measurements
    weights = rng.standard_normal((4, 2)), rng.standard_normal((4, 2, 2))
    parameter = dict(net.named_parameters())[name]
    out = run(net, records)
    wanted = [torch.as_tensor(part) for part in weights]
    found = gradients(net, (out.mean[1] * wanted[0]).sum() + (out.cov[1] * wanted[1]).sum())[name]
    constant = reference(net, *inputs)[2]
    h, expected = 1e-6, np.zeros(len(parameter))
    for place in range(len(parameter)):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter[place] += sign * h
                means, covs, _ = reference(net, *inputs, in_gain=constant)
                parameter[place] -= sign * h
            values.append((means * weights[0]).sum() + (covs * weights[1]).sum())
        expected[place] = (values[0] - values[1]) / (2 * h)
    assert_close(found, torch.as_tensor(expected), "finite_difference")


# ---- Φ -------------------------------------------------------------------------------------------------------------


def polynomials(shaper):
    """The whole cascade as ``b`` and ``a`` in ``z⁻¹``, in float64."""
    b, a = np.ones(1), np.ones(1)
    for numerator, feedback in zip(*map(array, shaper.sections()), strict=True):
        b, a = np.convolve(b, numerator), np.convolve(a, [1, *feedback])
    return b, a


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_phi_is_stable_for_every_value_of_its_parameters(order, dtype):
    generator = torch.Generator().manual_seed(order)
    shaper = StableShaper(order).to(dtype)
    assert shaper.raw.numel() == 2 * order + 1
    largest = 0.0
    for size in (0.3, 3.0, 30.0, 1e3, 1e30):
        for _ in range(50):
            with torch.no_grad():
                shaper.raw.copy_(size * torch.randn(2 * order + 1, generator=generator))
            # of each section: roots of the product would have the errors of multiple roots
            for feedback in array(shaper.sections().a):
                largest = max(largest, *np.abs(np.roots([1, *feedback])))
            b, a = polynomials(shaper)
            assert not b[order + 1 :].any()
            assert not a[order + 1 :].any()
    assert 0.9 < largest < POLE_RADIUS  # the edge was reached, and not crossed


def test_bounded_feedback_coefficients_alone_would_not_be_stable():
    """The reason for the cascade: what the public code bounds by one still grows without bound."""
    assert np.abs(np.roots([1, -0.9, -0.9, -0.9])).max() > 1.5


def test_phi_starts_as_the_identity_and_reaches_every_stable_filter_of_its_order(rng):
    shaper = StableShaper(3).double()
    b, a = polynomials(shaper)
    assert_close(b[:4], np.array([1.0, 0, 0, 0]))
    assert_close(a[:4], np.array([1.0, 0, 0, 0]))
    pole, angle, real = 0.97, 0.4, -0.8
    pair, pair_b, first_b = [-2 * pole * np.cos(angle), pole**2], rng.standard_normal(3), rng.standard_normal()
    sections = iir.Sections(
        torch.tensor([[*pair_b], [1.0, first_b, 0.0]], dtype=torch.float64),
        torch.tensor([pair, [-real, 0.0]], dtype=torch.float64),
    )
    raw = iir.raw_from_sections(sections, POLE_RADIUS)
    with torch.no_grad():
        shaper.raw.copy_(torch.cat((raw[0], raw[1][[0, 3]])))
    b, a = polynomials(shaper)
    assert_close(b[:4], np.convolve(pair_b, [1, first_b]))
    roots = np.sort_complex(np.roots(a[:4]))
    assert_close(roots, np.sort_complex([real, pole * np.exp(1j * angle), pole * np.exp(-1j * angle)]))


# ---- how it is made ------------------------------------------------------------------------------------------------


def test_the_variant_of_the_papers_filter_has_the_sizes_of_the_public_code():
    system = fwnkf.systems.LearnedSystem.of(H=torch.eye(2, 3))
    model = fwnkf.FWNKF.paper(system, variant="public_code")
    assert isinstance(model, PublicCodeFWNKF)
    assert model.config == fwnkf.build("fwnkf_public_code", system=system).config
    assert fwnkf.FWNKF.paper(system, variant="public_code", units=7, rank=1).config.units == 7
    assert isinstance(fwnkf.FWNKF.paper(system), fwnkf.FWNKF)
    with pytest.raises(ConfigError, match=r"sections = 2 .*fwnkf_public_code.*order"):
        fwnkf.FWNKF.paper(system, variant="public_code", sections=2)


@pytest.mark.unchecked("the type checker refuses it first")
def test_an_unknown_variant_is_refused():
    with pytest.raises(ConfigError, match="wanted 'paper' or 'public_code'"):
        fwnkf.FWNKF.paper(fwnkf.systems.LearnedSystem.of(H=torch.eye(2, 3)), variant="code")
