"""Filters whose channels are independent, taken apart: the estimates are those of the whole."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.filters.separate import separate
from fwnkf.identify.channels import ChannelModel, Line, channels_filter

NAMES = ("gyro_x", "gyro_y", "load")


def model(lines: bool = True, level: float | None = None) -> fwnkf.Filter:
    """Three channels with two lines, one and none."""
    counts = (2, 1, 0) if lines else (0, 0, 0)
    models = [
        ChannelModel(200.0, 2.0 + k, 0.5, 0.01 + 0.01 * k, tuple(Line(20 + 9 * k + 30 * i, 1.0, 0.3) for i in range(n)))
        for k, n in enumerate(counts)
    ]  # fmt: skip
    return channels_filter(models, NAMES, level_seconds=level)


@pytest.mark.parametrize("fixed_step", [False, True])
@pytest.mark.parametrize("lines", [False, True])
def test_parts_estimate_what_the_whole_filter_does(lines, fixed_step):
    whole = model(lines)
    y = torch.randn(2, 150, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.rand(y.shape, generator=torch.Generator().manual_seed(1)) > 0.2
    expected = whole.run(y, mask=mask)
    parts = separate(whole, fixed_step=fixed_step)
    assert [part.name for part in parts] == list(NAMES)
    assert [part.filter.takes_dt for part in parts] == [not fixed_step] * 3
    for part in parts:
        channels, states = list(part.channels), list(part.states)
        own = part.filter.run(y[..., channels], mask=mask[..., channels])
        # lines that a channel does not need have a ten-thousandth of its noise
        assert torch.allclose(own.mean, expected.mean[..., states], rtol=0, atol=1e-6)
        cov = expected.cov[..., states, :][..., states]
        assert torch.allclose(own.cov, cov, rtol=1e-6, atol=1e-9)


def test_lines_that_are_silent_are_left_out():
    sizes = [getattr(part.filter.noise_states, "size", 0) if part.filter.name == "fwnkf" else 0
             for part in separate(model())]  # fmt: skip
    assert sizes == [4, 2, 0]


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_a_level_of_all_covariances_leaves_the_estimates_and_follows_each_axis():
    whole = model(level=2.0)
    y = torch.randn(1, 300, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    y[:, 150:, 0] *= 10
    expected = whole.run(y)
    for part in separate(whole):
        own = part.filter.run(y[..., list(part.channels)])
        assert torch.allclose(own.mean, expected.mean[..., list(part.states)], rtol=0, atol=1e-6)
        assert part.filter.config.level.seconds == pytest.approx(6.0)
    levels = [part.filter.run(y[..., list(part.channels)]).state.levels[0].item() for part in separate(whole)]
    assert levels[0] > 5 * max(levels[1:])


def test_what_is_correlated_stays_together():
    F = torch.eye(3, dtype=torch.float64)
    R = torch.tensor([[1.0, 0.2, 0.0], [0.2, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    parts = separate(fwnkf.KF(F=F, H=F, Q=F, R=R, channels=("a", "b", "c")))
    assert [part.channels for part in parts] == [(0, 1), (2,)]
    system = fwnkf.LinearSystem.of(F=F, H=F, Q=F, R=F)
    for filter in (fwnkf.FWNKF(system, encoder=fwnkf.GRU(4)), fwnkf.UKF(system)):
        assert [part.filter for part in separate(filter)] == [filter]
