"""``--fix`` on a simulated vibration, against the filter with the true noise, and the score of notches."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import fwnkf
from fwnkf.diagnosis.calibrate import calibrated, scaled, split
from fwnkf.diagnosis.default_filter import channel_models
from fwnkf.diagnosis.fix import TRAIN, fix, notched, tuned_notches
from fwnkf.diagnosis.innovations import innovations
from fwnkf.diagnosis.series import Series
from fwnkf.errors import DataError
from fwnkf.identify.channels import ChannelModel, Line, channels_filter

TRUTH = ChannelModel(200.0, 4.0, 2.0, 0.01, (Line(60.0, 1.5, 0.3),))


def simulated(seed: int, steps: int = 8000) -> tuple[Series, np.ndarray]:
    """Two channels with the same kind of vibration, and their signals without it."""
    F, H, Q, R = (item.numpy() for item in TRUTH.matrices())
    generator = np.random.default_rng(seed)
    root = np.linalg.cholesky(Q + 1e-18 * np.eye(len(Q)))
    x = np.zeros((len(F), 2))
    x[2:] = generator.normal(size=(2, 2))
    y, clean = np.empty((steps, 2)), np.empty((steps, 2))
    for step in range(steps):
        x = F @ x + root @ generator.normal(size=x.shape)
        clean[step] = x[0]
        y[step] = (H @ x)[0] + math.sqrt(R[0, 0]) * generator.normal(size=2)
    return Series.of("imu", np.arange(steps) / 200, y, ["gyro_x", "gyro_y"], ["rad/s"] * 2), clean


@pytest.fixture(scope="module")
def flown():
    return simulated(0)


@pytest.fixture(scope="module")
def cure(flown, tmp_path_factory):
    return fix(flown[0], folder=tmp_path_factory.mktemp("fixed"))


def test_the_cure_predicts_better_and_is_consistent(cure):
    rows = {row["method"].split()[0]: row for row in cure.rows}
    assert rows["noise"]["log_likelihood"] > rows["white"]["log_likelihood"] + 0.5
    assert rows["noise"]["log_likelihood"] > rows["1"]["log_likelihood"]
    assert 0.9 < rows["noise"]["nis"] < 1.1
    assert abs(rows["noise"]["autocorrelation"]) < 0.1 < abs(rows["white"]["autocorrelation"])
    assert cure.parameters["gyro_x_line1_hz"] == pytest.approx(60.0, rel=0.01)


def test_the_cure_reaches_the_oracle(flown, cure):
    series, clean = flown
    _, test = split(series, TRAIN)
    fixed = innovations(fwnkf.load(cure.folder), test)
    oracle = innovations(channels_filter([TRUTH] * 2, series.channels), test)
    plain = ChannelModel(200.0, 4.0, 2.0, TRUTH.noise_std**2)
    white = innovations(channels_filter([plain] * 2, series.channels), test)
    at = np.searchsorted(series.time, fixed.time)
    errors = [np.mean((result.mean - clean[at]) ** 2) for result in (white, fixed, oracle)]
    assert (errors[0] - errors[1]) / (errors[0] - errors[2]) > 0.8
    # no filter predicts better than the one that is told the truth
    assert cure.rows[-1]["log_likelihood"] < float(np.nanmean(oracle.log_likelihood)) + 0.02


@pytest.mark.parametrize("seed", [0, 3])
def test_a_fit_to_nine_seconds_is_near_the_oracle(seed):
    """With segments as short as a smooth spectrum needs, the signal is below their first bins."""
    series, clean = simulated(seed, 3000)
    train, test = split(series, TRAIN)
    fitted = innovations(channels_filter(channel_models(train, lines=1, lowest_hz=8.0), series.channels), test)
    oracle = innovations(channels_filter([TRUTH] * 2, series.channels), test)
    at = np.searchsorted(series.time, oracle.time)
    ours, best = (np.mean((result.mean - clean[at]) ** 2) for result in (fitted, oracle))
    assert ours < 1.2 * best
    assert np.nanmean(fitted.log_likelihood) > np.nanmean(oracle.log_likelihood) - 0.1


def slow_motion(rate: float, seed: int) -> tuple[Series, np.ndarray, ChannelModel]:
    """15 s of a motion below 1 Hz with a vibration and white noise; the motion alone; and the noise as a model."""
    generator = np.random.default_rng(seed)
    time = np.arange(int(15 * rate)) / rate
    waves = [(0.07, 0.5), (0.13, 0.3), (0.2, 0.2), (0.23 * rate, 0.1)]  # Hz and amplitude; the last is the vibration
    *motion, vibration = (
        size * np.sin(2 * np.pi * (hz * time + phase))
        for (hz, size), phase in zip(waves, generator.uniform(size=4), strict=True)
    )
    clean = sum(motion)
    values = clean + vibration + 0.02 * generator.normal(size=len(time))
    true = ChannelModel(rate, 0.1, 0.1, 0.02**2, (Line(0.23 * rate, 0.02, 0.1 / math.sqrt(2)),))
    return Series.of("imu", time, values[:, None], ["gyro_x"], ["rad/s"]), clean, true


def error_after_the_fit(model, series, clean):
    """Root mean square error of a filter in the part that was not used to fit."""
    result = innovations(model, split(series, TRAIN)[1])
    return float(np.sqrt(np.mean((result.mean[:, 0] - clean[np.searchsorted(series.time, result.time)]) ** 2)))


def test_the_motion_of_a_short_log_is_fitted_to_its_samples():
    """The spectrum of a short log starts above the motion; with the motion that it suggests a filter lags behind."""
    series, clean, true = slow_motion(300.0, 1)
    (_, lined) = calibrated(split(series, TRAIN)[0], lines=1)
    fitted = error_after_the_fit(lined.filter(series.channels), series, clean)
    assert fitted < 1.5 * error_after_the_fit(channels_filter([true], series.channels), series, clean)
    assert lined.from_samples == (True,)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("rate", [100.0, 200.0, 300.0, 500.0, 1000.0])
def test_a_fix_from_fifteen_seconds_is_better_than_none(rate, seed, tmp_path):
    series, clean, true = slow_motion(rate, seed)
    result = fix(series, folder=tmp_path / "fixed")
    fixed = error_after_the_fit(fwnkf.load(result.folder), series, clean)
    default = channels_filter(channel_models(series, series.spectrum()), series.channels)
    assert fixed < float(np.std(series.values[:, 0] - clean))
    assert fixed < error_after_the_fit(default, series, clean)
    assert fixed < 1.5 * error_after_the_fit(channels_filter([true], series.channels), series, clean)
    assert any("fitted to the samples" in note for note in result.notes)


def test_what_was_kept_is_told(cure):
    rows = {row["method"]: row for row in cure.rows}
    assert (cure.kept, cure.outcome) == ("noise states", "better")
    assert cure.gain == pytest.approx(rows["noise states"]["log_likelihood"] - rows["white noise"]["log_likelihood"])
    assert 0 < cure.gain_error < cure.gain
    assert any("noise states" in note for note in cure.notes)


def test_a_filter_that_predicts_held_out_time_worse_is_not_saved(tmp_path):
    """The vibration that was fitted is gone, and another one is there: white noise is less wrong."""
    generator = np.random.default_rng(4)
    steps = 2500
    time = np.arange(steps) / 200
    hz = np.where(time < 0.6 * time[-1], 60.0, 47.0)
    values = 0.5 * np.sin(2 * np.pi * np.cumsum(hz) / 200) + 0.05 * generator.normal(size=steps)
    result = fix(Series.of("y", time, values[:, None], ["y"], [""]), folder=tmp_path / "fixed")
    assert (result.kept, result.outcome) == ("noise states", "worse")
    assert result.gain < 0
    assert result.folder is None
    assert not (tmp_path / "fixed").exists()
    assert any(note.startswith("not saved") for note in result.notes)


def test_without_a_line_nothing_changes():
    values = np.random.default_rng(3).normal(size=(2000, 1))
    result = fix(Series.of("y", np.arange(2000) / 200, values, ["y"], [""]))
    assert (result.kept, result.outcome, result.gain) == ("white noise", "unchanged", 0.0)


def test_the_saved_filter_has_the_names_of_the_channels(cure):
    model = fwnkf.load(cure.folder)
    assert [part.name for part in model.observation_layout.parts] == ["gyro_x", "gyro_y"]


def test_a_notch_gives_the_density_of_the_raw_sample():
    """White noise is known: behind a notch, its density plus log b₀ must be that of the raw sample on average."""
    generator = np.random.default_rng(2)
    steps = 6000
    series = Series.of("y", np.arange(steps) / 200, generator.normal(size=(steps, 1)), ["y"], [""])
    from fwnkf.diagnosis.notch import notch

    section = notch(50.0, 10.0, 200.0)
    behind = notched(series, [section], series)
    b, a = np.array(section.b), np.array(section.a)
    # the notch undone: y = (output - past) / b₀, so that the one-step density of the output is N(past, b₀²)
    predicted = b[0] * series.values[:, 0]
    past = behind.values[:, 0] - predicted
    wanted = -0.5 * np.log(2 * np.pi * b[0] ** 2) - 0.5 * ((behind.values[:, 0] - past) / b[0]) ** 2 + math.log(b[0])
    raw = -0.5 * np.log(2 * np.pi) - 0.5 * series.values[:, 0] ** 2
    np.testing.assert_allclose(wanted, raw, rtol=1e-9, atol=1e-12)
    assert a[0] == 1.0


def test_a_notch_knows_nothing_of_later_samples(flown):
    """With missing samples too, a sample changes nothing before it, and what comes out with it by b₀: its Jacobian."""
    keep = np.arange(4000) % 7 != 3
    series = flown[0].part(0.0, 20.0)
    series = Series.of("imu", series.time[keep], series.values[keep], series.channels, series.units, 200.0)
    (section,) = tuned_notches(flown[0])
    moved = replace(series, values=series.values.copy())
    for at in (2000, 2001, 2003):  # with and without a missing sample just before
        moved.values[at] = series.values[at] + 1
        after = notched(moved, [section], flown[0]).values - notched(series, [section], flown[0]).values
        np.testing.assert_array_equal(after[:at], 0)
        np.testing.assert_allclose(after[at], section.b[0], rtol=1e-9)
        moved.values[at] = series.values[at]


def test_notches_are_tuned_to_the_lines(flown):
    (section,) = tuned_notches(flown[0])
    assert abs(section.response(np.array([60.0]), 200.0)[0]) < 0.2


def test_a_level_leaves_the_gains_as_they_are(flown):
    series = flown[0].first(2000)
    once = innovations(channels_filter([TRUTH] * 2, series.channels), series)
    more = innovations(channels_filter([scaled(TRUTH, 4.0)] * 2, series.channels), series)
    late = once.time > 3
    np.testing.assert_allclose(more.values[late], once.values[late], atol=1e-6)
    np.testing.assert_allclose(more.nis[late], once.nis[late] / 4, rtol=1e-3)


def test_a_given_filter_is_compared_on_what_it_measures(flown):
    """A density of one channel is no match for that of two."""
    series = flown[0].first(5000)
    given = channels_filter([TRUTH], series.channels[1:])
    cure = fix(series, given=given)
    rows = {row["method"]: row["log_likelihood"] for row in cure.rows}
    assert all(name.startswith("gyro_y") for name in cure.parameters)
    # of the same channel, the truth predicts about as well as a fit to it
    assert rows["the filter given"] == pytest.approx(rows["noise states"], abs=0.1)


def test_a_short_series_is_refused():
    with pytest.raises(DataError, match="too few"):
        fix(simulated(0, 600)[0])
