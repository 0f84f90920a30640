"""Recordings as records: steps of several samples, windows, a number of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import uniform_filter1d

import fwnkf
from fwnkf.core.layout import Layout
from fwnkf.data.protocols import Protocol, Records, Split
from fwnkf.data.recording import Channel, Recording, Span
from fwnkf.errors import ConfigError, DataError
from tasks.windows import coarse, cut, in_steps, subset


def recording(samples: int = 23) -> Recording:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(samples, 2, generator=generator, dtype=torch.float64)
    mask = torch.ones(samples, 2, dtype=torch.bool)
    mask[7, 1] = False
    truth = torch.arange(samples, dtype=torch.float64).unsqueeze(-1)
    channels = (Channel("a", "m"), Channel("b", "m"))
    layout = Layout.euclidean(1)
    return Recording("walk", torch.arange(samples).double() / 100, values, channels, mask, truth, layout)


def records(count: int = 2, steps: int = 10) -> Records:
    y = torch.arange(count * steps, dtype=torch.float64).reshape(count, steps, 1)
    dt = torch.full((count, steps), 0.1, dtype=torch.float64)
    start = fwnkf.Gaussian(y[:, 0], torch.eye(1).double())
    spans = tuple(Span(f"walk {i}", "", 0, steps) for i in range(count))
    return Records("walks", y, y.clone(), y == y, dt, None, start, Layout.euclidean(1), spans)


def test_a_coarse_step_is_the_mean_of_its_samples_with_the_truth_at_its_end():
    fine, steps = recording(), coarse(recording(), 5)
    assert len(steps) == 4
    means = uniform_filter1d(fine.observations.numpy(), 5, axis=0, mode="nearest")[2:-2:5]
    np.testing.assert_allclose(steps.observations, means[:4], rtol=0, atol=1e-14)
    assert steps.truth.flatten().tolist() == [4, 9, 14, 19]
    assert steps.mask[:, 1].tolist() == [True, False, True, True]
    assert steps.rate == pytest.approx(20.0)


def test_windows_of_records_keep_their_samples_and_their_source():
    windows = cut(records(), window=4, stride=3)
    assert len(windows) == 6
    for row, span in enumerate(windows.spans):
        source = records().y[int(span.source[-1]), span.start : span.stop]
        assert torch.equal(windows.y[row], source)
    assert not windows.dt[:, 0].any()
    with pytest.raises(DataError, match="share samples"):
        Protocol("strict", "walks", 0, Split(windows.take([0]), windows.take([2]), windows.take([1])))


def test_a_subset_depends_on_the_seed_alone():
    split = Split(*(cut(records(), 4, 1) for _ in range(3)))
    first, again, other = (subset(split, (5, None, 2), seed) for seed in (0, 0, 1))
    assert [len(part) for part in first] == [5, 14, 2]
    assert torch.equal(first.train.y, again.train.y)
    assert not torch.equal(first.train.y, other.train.y)
    with pytest.raises(DataError, match="15 records wanted, but there are 14"):
        subset(split, (15, None, None), 0)


def test_samples_that_make_no_whole_steps_raise():
    assert in_steps(200, 5, "window") == 40
    with pytest.raises(ConfigError, match=r"data.window = 200 .* data.every = 3"):
        in_steps(200, 3, "window")
