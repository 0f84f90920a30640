"""Levels: as the filter follows them, up and down, and where the level of the noise changes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fwnkf.diagnosis.calibrate import Trial, followed, running_level
from fwnkf.diagnosis.innovations import innovations
from fwnkf.diagnosis.series import Series
from fwnkf.identify.channels import ChannelModel, Line, channels_filter

MODEL = ChannelModel(200.0, 4.0, 2.0, 0.01, (Line(60.0, 1.5, 0.3),))


def seconds(half_life: float | None) -> float | None:
    """The time constant of a level that forgets half in so many steps."""
    return None if half_life is None else half_life / MODEL.rate / math.log(2)


@torch.no_grad()
def test_levels_are_those_of_the_filter(generator):
    """The recursion in numpy that chooses a half-life against the filter that is then built with it."""
    y = torch.randn(1, 300, 2, generator=generator, dtype=torch.float64)
    mask = torch.rand(1, 300, 2, generator=generator) < 0.8
    plain, ours = (
        channels_filter([MODEL, replace(MODEL, lines=())], ["x", "y"], level_seconds=seconds(half_life)).run(
            y, mask=mask
        )
        for half_life in (None, 16.0)
    )
    variance = plain.innovation_cov[0].diagonal(dim1=-2, dim2=-1)
    squares = torch.where(mask[0], plain.innovation[0].square() / variance, 0.0).numpy()
    count = mask[0].numpy().sum(1, keepdims=True)
    levels = running_level(squares.sum(1, keepdims=True) / np.maximum(count, 1), count / 2, 16.0, channels=2)
    stated = ours.innovation_cov[0].diagonal(dim1=-2, dim2=-1) / variance
    np.testing.assert_allclose(stated.numpy(), np.repeat(levels, 2, 1), rtol=1e-9)


@pytest.mark.parametrize("size", [0.1, 10.0])
def test_a_channel_is_scaled_both_ways(size):
    noise = np.random.default_rng(0).normal(size=(3000, 2)) * np.sqrt([size, 1.0])
    trial = Trial(noise**2, np.zeros((3000, 2))).at_their_level()
    np.testing.assert_allclose(trial.squares.mean(0), 1.0)
    np.testing.assert_allclose(np.exp(trial.log_variance[0]), [size, 1.0], rtol=0.1)


def test_a_level_that_stays_is_not_followed_and_one_that_changes_is():
    noise = np.random.default_rng(1).normal(size=(4000, 6))
    steady = Trial(noise**2, np.zeros_like(noise))
    assert followed(steady)[0] is None
    loud = np.where(np.arange(4000) // 400 % 2, 9.0, 1.0)[:, None] / 5
    half_life, score = followed(Trial(noise**2 * loud, np.zeros_like(noise)))
    # told the level, the density has a closed form; following it loses a few hundredths of a nat for each channel
    told = -3 * (np.log(2 * np.pi) + 1) - 3 * np.log(loud).mean()
    assert half_life is not None
    assert told - 0.3 < score < told + 0.1


def test_noise_states_are_consistent_on_a_line_that_sweeps():
    """At one level, whichever it is, NIS differs by far between the parts of a sweep; followed, it does not."""
    generator = np.random.default_rng(0)
    time = np.arange(4000) / 200
    frequency = 60 + 12 * np.sin(2 * np.pi * time / 20)
    sine = 0.5 * np.sin(2 * np.pi * np.cumsum(frequency) / 200)
    series = Series.of("gyro", time, (sine + 0.02 * generator.normal(size=4000))[:, None], ["gyro_x"], ["rad/s"])
    model = ChannelModel(200.0, 0.01, 1.0, 4e-4, (Line(60.0, 10.0, 0.35),))
    spread = {}
    for half_life in (None, 16.0):
        nis = innovations(channels_filter([model], ["gyro_x"], level_seconds=seconds(half_life)), series).nis
        parts = np.array([part.mean() for part in np.array_split(nis, 6)])
        spread[half_life] = parts / (nis.mean() if half_life is None else 1.0)
    assert np.ptp(spread[None]) > 0.5
    np.testing.assert_allclose(spread[16.0], 1.0, atol=0.15)
