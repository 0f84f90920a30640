"""Innovations of pieces against one long run, and their consistency against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import fwnkf
from fwnkf.diagnosis.consistency import band, channel_consistency, consistency, whiteness
from fwnkf.diagnosis.default_filter import channel_models
from fwnkf.diagnosis.innovations import innovations, match_channels
from fwnkf.diagnosis.pieces import batches, pieces
from fwnkf.diagnosis.series import Series
from fwnkf.errors import DataError
from fwnkf.filters.base import Filter
from fwnkf.identify.channels import channels_filter
from fwnkf.identify.start import starting_belief


def series_of(steps: int, seed: int = 0, keep: np.ndarray | None = None) -> Series:
    generator = np.random.default_rng(seed)
    time = np.arange(steps) / 200
    walk = 0.02 * generator.normal(size=(steps, 2)).cumsum(0)
    values = walk + 0.1 * generator.normal(size=(steps, 2))
    keep = np.ones(steps, bool) if keep is None else keep
    return Series.of("imu", time[keep], values[keep], ["gyro_x", "gyro_y"], ["rad/s"] * 2)


def default_filter(series: Series) -> Filter:
    """A filter whose states are the signals and slopes of the channels."""
    return channels_filter(channel_models(series), series.channels)


def test_pieces_hold_every_sample_once():
    keep = np.ones(3000, bool)
    keep[700:1100] = False  # a gap
    keep[50::13] = False  # skipped samples
    series = series_of(3000, keep=keep)
    assert len(series.runs()) == 2
    cut = pieces(series, length=300, warm=100)
    used = np.sort(cut.sample[cut.sample >= 0])
    assert len(np.unique(used)) == len(used)
    for row, step in zip(*np.nonzero(cut.sample >= 0), strict=True):
        np.testing.assert_array_equal(cut.y[row, step], series.values[cut.sample[row, step]])
    assert len(used) > len(series) - 2 * 110


def test_many_gaps_do_not_pad_a_log_to_many_times_its_size():
    """Half of the log without a gap, half of it in hundreds of short runs."""
    keep = np.ones(60_000, bool)
    keep[30_000:] = np.arange(30_000) % 100 < 60
    series = series_of(60_000, keep=keep)
    assert len(series.runs()) == 300
    cuts = list(batches(series, length=1000, warm=400, most=64))
    whole = pieces(series, length=1000, warm=400)
    used = np.sort(np.concatenate([cut.sample[cut.sample >= 0] for cut in cuts]))
    np.testing.assert_array_equal(used, np.sort(whole.sample[whole.sample >= 0]))
    assert sum(cut.sample.size for cut in cuts) < 3 * len(series) < whole.sample.size
    result = innovations(default_filter(series), series)
    assert (np.diff(result.time) > 0).all()
    assert np.nanmean(result.nis) == pytest.approx(1.0, abs=0.1)


def test_a_filter_with_an_origin_has_the_innovations_of_absolute_numbers():
    """A log has absolute numbers, such as UTM coordinates; the filter without an origin needs double precision."""
    north, dt = 5_400_000.0, 0.005
    rng = np.random.default_rng(0)
    time = dt * np.arange(2000)
    series = Series.of("gps", time, north + time[:, None] + 0.1 * rng.normal(size=(2000, 1)), ["north"], ["m"])

    def tracker(dtype: torch.dtype, origin: tuple[float, ...]) -> Filter:
        Q, R = np.diag([1e-6, 1e-4]), [[1e-2]]
        matrices = {"F": [[1.0, dt], [0.0, 1.0]], "H": [[1.0, 0.0]], "Q": Q, "R": R}
        layout = [("north", "euclidean", 1, origin), ("speed", "euclidean", 1)]
        tensors = {name: torch.tensor(value, dtype=dtype) for name, value in matrices.items()}
        return fwnkf.build("kf", **tensors, dt=dt, layout=layout)

    found = innovations(tracker(torch.float32, (north,)), series)
    wanted = innovations(tracker(torch.float64, ()), series)
    np.testing.assert_allclose(found.values, wanted.values, atol=1e-3)
    np.testing.assert_allclose(found.nis.mean(), wanted.nis.mean(), rtol=1e-3)
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=0, atol=1e-3)


def test_a_filter_of_another_rate_is_refused():
    """A filter with a fixed step would silently run at a wrong speed."""
    one = torch.eye(2, dtype=torch.float64)
    series = series_of(1000)
    model = fwnkf.build("kf", F=one, H=one, Q=0.01 * one, R=one, dt=0.01, channels=series.channels)
    with pytest.raises(DataError, match=r"fixed step of 0\.01 s, but imu has 200 Hz"):
        innovations(model, series)
    model = fwnkf.build("kf", F=one, H=one, Q=0.01 * one, R=one, dt=0.005, channels=series.channels)
    assert len(innovations(model, series).time) > 500


def test_innovations_of_pieces_are_those_of_one_run():
    keep = np.ones(4000, bool)
    keep[20::17] = False
    series = series_of(4000, keep=keep)
    model = default_filter(series)
    result = innovations(model, series)
    grid = torch.full((1, 4000, 2), torch.nan, dtype=torch.float64)
    grid[0, series.index] = torch.from_numpy(series.values)
    mask = grid.isfinite()
    with torch.no_grad():
        prior = starting_belief(model, grid, None, mask)
        track = model.run(grid.nan_to_num(), mask=mask, prior=prior)
    at = np.searchsorted(series.time, result.time)
    wanted = track.innovation[0, series.index[at]].numpy()
    late = result.time > 5
    np.testing.assert_allclose(result.values[late], wanted[late], atol=2e-3 * np.abs(wanted).max())
    assert np.nanmean(result.nis) == pytest.approx(1.0, abs=0.1)


def test_the_band_is_that_of_scipy():
    for count in (20, 100, 5000):
        wanted = stats.chi2.ppf([0.025, 0.975], count) / count
        np.testing.assert_allclose(band(count), wanted, rtol=0.004)


def test_the_band_holds_the_mean_of_consistent_innovations():
    generator = np.random.default_rng(3)
    time = np.arange(2000) / 100
    rows = [channel_consistency("x", "NIS", time, generator.normal(size=2000)) for _ in range(200)]
    outside = np.mean([not row.low <= row.mean <= row.high for row in rows])
    assert 0.01 < outside < 0.11  # 5 % expected, 3 binomial deviations
    assert np.mean([(row.white_p or 0) < 0.05 for row in rows]) < 0.11


def test_a_correlated_series_has_a_wider_band_and_is_not_white():
    generator = np.random.default_rng(4)
    noise = generator.normal(size=4000)
    coloured = np.empty(4000)
    coloured[0] = noise[0]
    for step in range(1, 4000):
        coloured[step] = 0.9 * coloured[step - 1] + np.sqrt(1 - 0.81) * noise[step]
    white = whiteness(coloured, [slice(0, 4000)])
    assert white.p < 1e-6
    assert white.largest == pytest.approx(0.9, abs=0.05)
    # of squares of a Gaussian series with correlation 0.9^k: 1 / (1 + 2 Σ 0.81^k)
    assert white.effective == pytest.approx(1 / (1 + 2 * 0.81 / 0.19), rel=0.3)


def test_a_filter_of_wrong_noise_is_inconsistent_by_its_factor():
    series = series_of(6000)
    model = default_filter(series)
    with torch.no_grad():
        model.system.R.value.div_(4)
        model.system.Q.value.div_(4)
    rows = consistency(innovations(model, series))
    assert all(row.mean == pytest.approx(4.0, rel=0.15) and row.mean > row.high for row in rows)


def test_channels_are_matched_by_name():
    series = series_of(2000)
    model = default_filter(series)
    swapped = series.columns([1, 0])
    assert match_channels(model, swapped) == [1, 0]
    with pytest.raises(DataError, match="gyro_x"):
        match_channels(model, Series.of("pose", series.time, series.values, ["a", "b"], ["", ""]))
