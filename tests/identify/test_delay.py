"""Delays that are known: of sampled waves, and of orientations some time ago."""

from __future__ import annotations

import pytest
import torch

from fwnkf.core import rotation
from fwnkf.errors import ConfigError, DataError
from fwnkf.identify.delay import cross_correlation_delay, orientation_delay

RATE = 100.0


def noise(count: int, generator: torch.Generator, delay: float = 0.0) -> torch.Tensor:
    """Band-limited noise as a sum of waves, so that any delay is exact."""
    frequency = torch.linspace(0.3, 4.0, 40, dtype=torch.float64)
    phase = 2 * torch.pi * torch.rand(40, generator=generator, dtype=torch.float64)
    t = torch.arange(count, dtype=torch.float64).unsqueeze(-1) / RATE - delay
    return (2 * torch.pi * frequency * t + phase).sin().sum(-1)


@pytest.mark.parametrize("delay", [0.0, 0.0234, -0.0471])
def test_the_delay_of_band_limited_noise(delay):
    """The parabola is the second-order expansion of the correlation: good to a few hundredths of a sample."""
    late = noise(5000, torch.Generator().manual_seed(1), delay)
    reference = noise(5000, torch.Generator().manual_seed(1))
    estimate = cross_correlation_delay(late.unsqueeze(-1), reference.unsqueeze(-1), RATE)
    assert float(estimate) == pytest.approx(delay, abs=2e-4)


def test_channels_are_apart_and_recordings_together(generator):
    x = torch.randn(3, 400, 2, generator=generator, dtype=torch.float64)
    late = torch.stack((x[..., 0].roll(3, 1), -x[..., 1].roll(-2, 1)), -1)
    estimate = cross_correlation_delay(torch.stack((late[..., 0], -late[..., 1]), -1), x, RATE, limit=6)
    assert (estimate * RATE).round().tolist() == [3.0, -2.0]


@pytest.mark.unchecked("the shape checker raises first")
def test_what_cannot_be_estimated_is_refused(generator):
    x = torch.randn(400, 1, generator=generator, dtype=torch.float64)
    with pytest.raises(DataError, match="border"):
        cross_correlation_delay(x.roll(9, 0), x, RATE, limit=9)
    with pytest.raises(ConfigError, match="need more than"):
        cross_correlation_delay(x[:20], x[:20], RATE)
    with pytest.raises(ConfigError, match="reference"):
        cross_correlation_delay(x, x[:200], RATE)
    still = torch.tensor([[1.0, 0, 0, 0]]).double()
    with pytest.raises(DataError, match="does not rotate"):
        orientation_delay(still, still, torch.tensor([[0.0, 0.0, 1.0]]).double())


def test_an_orientation_of_some_time_ago_is_that_late_whatever_its_heading(generator):
    rate = torch.randn(500, 3, generator=generator, dtype=torch.float64)
    truth = rotation.normalize(torch.randn(500, 4, generator=generator, dtype=torch.float64))
    turn = rotation.exp(torch.tensor([0.0, 0.0, 2.0]).double())
    for delay in (0.01, -0.004):
        late = rotation.multiply(turn, rotation.extrapolate(truth, rate, -delay))
        assert orientation_delay(late, truth, rate) == pytest.approx(delay, rel=1e-3)
        assert orientation_delay(rotation.extrapolate(late, rate, delay), truth, rate) == pytest.approx(0, abs=1e-9)
