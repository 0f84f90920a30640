"""Biquad cascades against scipy.signal; stability for every raw value in float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import signal

from fwnkf.core import iir

from ..tolerances import assert_close

RADIUS = 0.98


def random_cascade(generator, *shape):
    raw = torch.randn(*shape, 5, generator=generator, dtype=torch.float64)
    return iir.sections(raw, RADIUS)


def sos(cascade):
    """scipy's second-order sections of one filter."""
    ones = torch.ones_like(cascade.a[..., :1])
    return torch.cat((cascade.b, ones, cascade.a), -1).numpy()


def filter_signal(matrix, x):
    """Filter a signal [T, B, m] sample by sample."""
    memory = torch.zeros(*x.shape[1:], matrix.shape[-1] - 1, dtype=x.dtype)
    out = []
    for sample in x:
        y, memory = iir.step(matrix, sample, memory)
        out.append(y)
    return torch.stack(out)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "per channel"])
def test_cascade_is_sosfilt(generator, shared):
    cascade = random_cascade(generator, 3) if shared else random_cascade(generator, 4, 3)
    x = torch.randn(2000, 2, 4, generator=generator, dtype=torch.float64)
    y = filter_signal(iir.state_space(cascade), x)
    for channel in range(4):
        sections = cascade if shared else iir.Sections(cascade.b[channel], cascade.a[channel])
        expected = signal.sosfilt(sos(sections), x[:, :, channel].numpy(), axis=0)
        scale = np.abs(expected).max()
        assert_close(y[:, :, channel] / scale, expected / scale, "cascade")


def test_response_is_sosfreqz(generator):
    cascade = random_cascade(generator, 2, 3)
    omega = torch.linspace(0, np.pi, 257, dtype=torch.float64)
    response = iir.response(cascade, omega)
    for item in range(2):
        _, expected = signal.sosfreqz(sos(iir.Sections(cascade.b[item], cascade.a[item])), worN=omega.numpy())
        scale = np.abs(expected).max()
        assert_close(response[item] / scale, expected / scale, "algebra")


def sort(roots):
    return np.sort_complex(np.round(roots, 12))


def test_poles_and_zeros_are_numpys_roots(generator):
    cascade = random_cascade(generator, 50, 2)
    for mine, numpy_of in (
        (iir.poles(cascade), lambda i, k: np.roots(np.concatenate(([1.0], cascade.a[i, k].numpy())))),
        (iir.zeros(cascade), lambda i, k: np.roots(cascade.b[i, k].numpy())),
    ):
        for i in range(50):
            for k in range(2):
                assert_close(sort(mine[i, k].numpy()), sort(numpy_of(i, k)))


def test_raw_round_trip_from_designed_filters():
    """The parametrisation reproduces designed Butterworth sections."""
    for order, edges, kind in ((4, 0.2, "low"), (4, 0.3, "high"), (2, (0.2, 0.4), "bandstop")):
        designed = torch.as_tensor(signal.butter(order, edges, kind, output="sos"))
        cascade = iir.Sections(designed[:, :3], designed[:, 4:])
        rebuilt = iir.sections(iir.raw_from_sections(cascade, RADIUS), RADIUS)
        assert_close(rebuilt.b, cascade.b, "rounding")
        assert_close(rebuilt.a, cascade.a, "rounding")


def saturated_raws(generator):
    random = torch.randn(20_000, 5, generator=generator) * 10 ** torch.empty(20_000, 1).uniform_(
        -1, 4, generator=generator
    )
    extreme = torch.tensor([-1e30, -1e6, -20.0, -8.0, -1.0, -1e-4, 0.0, 1e-4, 1.0, 8.0, 20.0, 1e6, 1e30])
    grid = torch.cartesian_prod(extreme, extreme)
    return torch.cat((random, torch.nn.functional.pad(grid, (0, 3))))


@pytest.mark.parametrize("radius", [0.5, 0.9, 0.98, 0.999])
def test_poles_stay_inside_the_stated_radius_for_every_raw_value(generator, radius):
    """Coefficients computed and rounded in float32, their poles taken in float64: what a device would run."""
    raw = saturated_raws(generator)
    a = iir.sections(raw, radius).a.double().numpy()
    root = np.sqrt((a[:, 0] ** 2 / 4 - a[:, 1]).astype(complex))
    modulus = np.maximum(np.abs(-a[:, 0] / 2 + root), np.abs(-a[:, 0] / 2 - root))
    assert modulus.max() < radius
    assert modulus.max() > 0.99 * radius  # the poles reach the radius, so the parametrisation covers it


def test_both_real_and_complex_poles_can_be_reached(generator):
    poles = iir.poles(iir.sections(saturated_raws(generator).double(), RADIUS))
    complex_ = poles.imag.abs() > 1e-3
    assert bool(complex_.any())
    assert bool((~complex_).any())
    assert bool((poles[complex_].abs() > 0.97).any())
    assert bool((poles[~complex_].real > 0.97).any())
    assert bool((poles[~complex_].real < -0.97).any())


def test_raw_zeros_are_the_identity(generator):
    cascade = iir.sections(torch.zeros(3, 2, 5), RADIUS)
    x = torch.randn(20, 2, 3, generator=generator)
    assert torch.equal(filter_signal(iir.state_space(cascade), x), x)
    assert torch.equal(iir.response(cascade, torch.linspace(0, 3, 9)), torch.ones(3, 9, dtype=torch.complex64))


def test_gradients_through_the_cascade(generator):
    raw = torch.randn(2, 2, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    x = torch.randn(4, 1, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r, s: filter_signal(iir.state_space(iir.sections(r, RADIUS)), s), (raw, x))
